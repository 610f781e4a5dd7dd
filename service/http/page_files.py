"""Pages for people, and the files that they load: all of this package, none from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from flask import Response

# A page needs its own files, its own service, and previews of pictures that the reader chose; nothing else.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def page(name: str) -> Response:
    """An HTML file, with the policy that keeps it from loading or sending anything elsewhere."""
    response = page_file(name, "text/html")
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def page_file(name: str, media_type: str) -> Response:
    """A file as it is; browsers ask whether it has changed before they use it again."""
    response = Response(_content(name), content_type=f"{media_type}; charset=utf-8")
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


@cache
def _content(name: str) -> bytes:
    """A file of the package, read once."""
    return files("service.http").joinpath("pages", name).read_bytes()
