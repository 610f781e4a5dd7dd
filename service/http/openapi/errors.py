"""How errors are answered, from the one table of them: problem documents, or one text in the protocols."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from service.http.openapi.answers import answer, headers
from service.http.openapi.references import ref
from service.http.problems import MAX_CHARS, MAX_FAULTS, PROBLEM_JSON, PROBLEMS

_RETRY_STATUSES = (429, 503)

# What no error class of ours says: a key is looked at before there is one, and a line too long never gets to the app.
_OTHERS = {401: "The API key is missing or wrong.", 414: "The path or the query is longer than the server takes."}

# What a protocol that has no 422 calls it.
_MERGED = {422: 400}

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
PROTOCOL_ERROR = {
    "type": "object",
    "description": "What went wrong, in the one text that clients of the protocol look for.",
    "properties": {"error": _TEXT | {"description": "What was wrong, where, and which setting changes it."}},
    "required": ["error"],
    "additionalProperties": False,
}


class ErrorForm(StrEnum):
    """Who is answered, and so how; the values begin the names of the components."""

    NATIVE = "Problem"
    V1 = "V1Error"
    V2 = "V2Error"


def errors(statuses: Iterable[int], form: ErrorForm = ErrorForm.NATIVE) -> dict[str, Any]:
    """References to the answers with these statuses, as the responses of an operation."""
    known = {_status_in(form, status) for status in statuses}
    return {str(status): ref(f"{form}{status}", "responses") for status in sorted(known)}


def error_responses() -> dict[str, Any]:
    """The Response Object of each status that an error can have, in each form, by component name."""
    listed = {*_OTHERS, *(status for status, _ in PROBLEMS.values())}
    return {
        f"{form}{status}": _response(form, status)
        for form in ErrorForm
        for status in sorted({_status_in(form, one) for one in listed})
    }


def _status_in(form: ErrorForm, status: int) -> int:
    return _MERGED.get(status, status) if form is ErrorForm.V2 else status


def _response(form: ErrorForm, status: int) -> dict[str, Any]:
    causes = [
        _sentence(kind.__doc__ or title) for kind, (own, title) in PROBLEMS.items() if _status_in(form, own) == status
    ]
    extra = ["Retry-After"] if status in _RETRY_STATUSES else ["WWW-Authenticate"] if status == 401 else []
    is_native = form is ErrorForm.NATIVE
    media_type, schema = (PROBLEM_JSON, "Problem") if is_native else ("application/json", "ProtocolError")
    described = answer(" ".join(causes) or _OTHERS[status], media_type, ref(schema))
    return described | {"headers": headers(*extra)}


def _sentence(docstring: str) -> str:
    """The first line of an error's docstring, without what it says of attributes."""
    return docstring.strip().partition("\n")[0].partition(" `")[0]
