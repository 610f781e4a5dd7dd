"""In which characters a body of text is written: UTF-8, whatever else its Content-Type would have."""

from __future__ import annotations

from flask import Request

from service.errors import UnsupportedMedia

# US-ASCII is the first half of UTF-8. *Source:* IANA's names of both, and what clients write for them.
_TAKEN = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})


def refuse_other_charset(request: Request) -> None:
    """Raise UnsupportedMedia where the Content-Type names a charset whose text would be read as another one."""
    charset = request.mimetype_params.get("charset")
    if charset is not None and charset.strip().lower() not in _TAKEN:
        raise UnsupportedMedia("the Content-Type names a charset; the only one taken is utf-8, as without any")
