"""Which paths belong to a protocol that has a form of its own for errors; imports nothing, as every side needs it."""

from __future__ import annotations

import re

_PROTOCOL = re.compile(r"/v[12](/|$)")


def is_of_protocol(path: str) -> bool:
    """Whether an error at `path` is one text, `{"error": "..."}`, and no problem document."""
    return _PROTOCOL.match(path) is not None
