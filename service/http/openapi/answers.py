"""What answers have in common: their headers, and the problem documents from the one table of errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from service.http.openapi.operation import ref
from service.http.problems import MAX_CHARS, MAX_FAULTS, PROBLEM_JSON, PROBLEMS

_RETRY_STATUSES = (429, 503)

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
    "WWW-Authenticate": {
        "description": "How to give the key.",
        "required": True,
        "schema": {"type": "string"},
    },
}

_ON_EVERY_ANSWER = ("X-Request-ID", "X-Model-Version", "Server-Timing")

# What an error class of ours does not say about a status.
_KEY_REFUSED = "The API key is missing or wrong."

_TEXT = {"type": "string", "maxLength": MAX_CHARS}
_PLACE = {
    "type": "object",
    "properties": {
        "loc": _TEXT | {"description": "Where, e.g. `instances[3][0]`; empty for the body as a whole."},
        "msg": _TEXT | {"description": "What is wrong there."},
    },
    "required": ["loc", "msg"],
    "additionalProperties": False,
}
PROBLEM = {
    "type": "object",
    "description": "What went wrong, as RFC 9457 has it.",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string", "description": "The kind of error; the same words each time."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": _TEXT | {"description": "What was wrong, what is allowed, and which setting changes it."},
        "request_id": {"type": "string", "description": "Under this the request stands in the service's log."},
        "errors": {"type": "array", "items": _PLACE, "minItems": 1, "maxItems": MAX_FAULTS},
    },
    "required": ["type", "title", "status", "detail", "request_id"],
    "additionalProperties": False,
}


def headers(*more: str) -> dict[str, Any]:
    """References to the headers of every answer and to `more`."""
    return {name: ref(name, "headers") for name in (*_ON_EVERY_ANSWER, *more)}


def answer(description: str, media_type: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A Response Object with a body. `more`: further keys of its Media Type Object."""
    return {"description": description, "headers": headers(), "content": {media_type: {"schema": schema, **more}}}


def problems(statuses: Iterable[int]) -> dict[str, Any]:
    """References to the problem documents with these statuses, as the responses of an operation."""
    return {str(status): ref(f"Problem{status}", "responses") for status in sorted(statuses)}


def problem_responses() -> dict[str, Any]:
    """The Response Object of each status that an error can have, by component name."""
    return {
        f"Problem{status}": _problem(status) for status in sorted({401, *(status for status, _ in PROBLEMS.values())})
    }


def _problem(status: int) -> dict[str, Any]:
    causes = [_sentence(kind.__doc__ or title) for kind, (listed, title) in PROBLEMS.items() if listed == status]
    described = answer(" ".join(causes) or _KEY_REFUSED, PROBLEM_JSON, ref("Problem"))
    extra = ["Retry-After"] if status in _RETRY_STATUSES else ["WWW-Authenticate"] if status == 401 else []
    return described | {"headers": headers(*extra)}


def _sentence(docstring: str) -> str:
    """The first line of an error's docstring, without what it says of attributes."""
    return docstring.strip().partition("\n")[0].partition(" `")[0]
