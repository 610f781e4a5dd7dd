"""What answers have in common: their headers, and how an answer with a body is written down."""

from __future__ import annotations

from typing import Any

from service.http.openapi.references import ref
from service.http.v2.wire import HEADER_LENGTH

HEADERS: dict[str, Any] = {
    "X-Request-ID": {
        "description": "The caller's own, if it is 1 to 64 of A-Z a-z 0-9 . _ -; else a new one.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    },
    "X-Model-Version": {
        "description": "The version of the model that is served; left out while it is not known.",
        "schema": {"type": "string"},
    },
    "Server-Timing": {
        "description": "Milliseconds in each phase, W3C Server-Timing.",
        "required": True,
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Seconds after which asking again makes sense.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    HEADER_LENGTH: {
        "description": "Where binary tensors follow: how many bytes at the front of the body are JSON.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {
        "description": "How to give the key.",
        "required": True,
        "schema": {"type": "string"},
    },
}

_ON_EVERY_ANSWER = ("X-Request-ID", "X-Model-Version", "Server-Timing")


def headers(*more: str) -> dict[str, Any]:
    """References to the headers of every answer and to `more`."""
    return {name: ref(name, "headers") for name in (*_ON_EVERY_ANSWER, *more)}


def answer(description: str, media_type: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A Response Object with a body. `more`: further keys of its Media Type Object."""
    return {"description": description, "headers": headers(), "content": {media_type: {"schema": schema, **more}}}


def empty(description: str) -> dict[str, Any]:
    """A Response Object without a body."""
    return {"description": description, "headers": headers()}
