"""The id under which one request stands in its answer and in the log."""

from __future__ import annotations

import re
import secrets

from flask import g, request

_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def request_id() -> str:
    """The caller's own `X-Request-ID` when it is well formed, else a new one; the same for the whole request."""
    known: str | None = g.get("jitney_request_id")
    if known is None:
        asked = request.headers.get("X-Request-ID", "")
        known = g.jitney_request_id = asked if _ACCEPTED.fullmatch(asked) else secrets.token_hex(8)
    return known
