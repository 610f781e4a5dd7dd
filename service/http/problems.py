"""Errors as RFC 9457 problem documents: the one table from exceptions to status codes."""

from __future__ import annotations

import logging
import math

from flask import Response, request
from werkzeug.exceptions import HTTPException

from service import errors
from service.http.json import json_response
from service.http.places import as_sent
from service.http.state import request_id, state_in
from service.protocol_paths import is_of_protocol

_log = logging.getLogger("jitney.http")

# Status and title of every error that a request can end with; a test checks that none is missing. A class of its own
# that an application derives from one of these is answered like the nearest one above it.
PROBLEMS: dict[type[errors.JitneyError], tuple[int, str]] = {
    errors.MalformedBody: (400, "Malformed body"),
    errors.Unauthorized: (401, "Key needed"),
    errors.Forbidden: (403, "Switched off"),
    errors.UnknownModel: (404, "Unknown model"),
    errors.UnknownVersion: (404, "Unknown version"),
    errors.VersionMismatch: (409, "Version not served"),
    errors.TooLarge: (413, "Too large"),
    errors.UnsupportedMedia: (415, "Unsupported media type"),
    errors.UnsupportedEncoding: (415, "Unsupported content encoding"),
    errors.InvalidInput: (422, "Invalid input"),
    errors.QueueFull: (429, "Queue full"),
    errors.ClientGone: (499, "Client closed its connection"),
    errors.ModelFailed: (500, "Model failed"),
    errors.LoadFailed: (500, "Load failed"),
    errors.OutOfMemory: (500, "Out of memory"),
    errors.SchedulerFailed: (500, "Scheduler failed"),
    errors.OutputCountMismatch: (500, "Wrong output count"),
    errors.NonFiniteOutput: (500, "Non-finite output"),
    errors.NotReady: (503, "Not ready"),
    errors.Draining: (503, "Stopping"),
    errors.WorkerDead: (503, "Worker dead"),
    errors.DeadlineExceeded: (504, "Deadline exceeded"),
}

_UNLISTED = (500, "Internal error")

# An error names at most this many places, has no text longer than this many characters, and is shorter than this.
MAX_FAULTS = 20
MAX_CHARS = 200
MAX_BYTES = 8 * 1024

PROBLEM_JSON = "application/problem+json"

# What is not measured is a guess that keeps clients from hammering: how soon to ask again, seconds.
NOT_READY_RETRY_S = 2


def from_error(error: errors.JitneyError) -> Response:
    """The answer to a request that ended with `error`."""
    status, title = next((PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS), _UNLISTED)
    faults: list[errors.Fault] = []
    if isinstance(error, errors.InvalidInput):
        faults = list(error.faults)
    elif isinstance(error, errors.PredictionFailed):
        faults = [errors.Fault(f"instances[{row}]", str(error)) for row in error.rows]
    detail = str(error)
    place_of = state_in(request.environ).place_of
    if place_of is not None:
        detail = as_sent(detail, place_of)
        faults = [errors.Fault(as_sent(fault.loc, place_of), as_sent(fault.msg, place_of)) for fault in faults]
    if isinstance(error, errors.InvalidInput) and faults[0].loc:
        detail = f"{faults[0].loc}: {detail}"
    if status == 500:
        # The batch's own line in the log tells what the model raised; this one tells whose request it was.
        _log.error("request %s ended with 500: %s", request_id(), title)
    headers = advice(error, status)
    if "Retry-After" in headers and is_of_protocol(request.path):
        detail += f"; try again in {headers['Retry-After']} s"  # clients of these protocols show no headers
    response = problem(status, title, detail, faults)
    response.headers.update(headers)
    return response


def advice(error: errors.JitneyError, status: int) -> dict[str, str]:
    """The headers that tell a client what to do about `error`, in whatever form its body is."""
    if isinstance(error, errors.QueueFull | errors.NotReady) and error.retry_after_s is not None:
        return {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    if isinstance(error, errors.UnsupportedEncoding):
        return {"Accept-Encoding": ", ".join(error.allowed)}
    if isinstance(error, errors.Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    return {"Retry-After": str(NOT_READY_RETRY_S)} if status == 503 else {}


def from_http_exception(error: HTTPException) -> Response:
    """The answer to what Flask itself refuses: unknown paths, wrong methods, bodies over the limit."""
    status = error.code or 500
    response = problem(status, error.name, _DETAILS.get(status, error.name))
    for name, value in error.get_headers():
        if name in ("Allow", "Retry-After"):
            response.headers[name] = value
    return response


def from_surprise(error: Exception) -> Response:
    """The answer to a bug of ours: the log has the traceback, the client an id to quote."""
    _log.error("request %s failed unexpectedly", request_id(), exc_info=error)
    return problem(500, "Internal error", "the service failed on this request; its request_id is in the service's log")


def problem(status: int, title: str, detail: str, faults: list[errors.Fault] | None = None) -> Response:
    """A problem document, or the error of the protocol whose path was asked for.

    Places are left out from the end when it would become too long.
    """
    state_in(request.environ).problem = title
    if is_of_protocol(request.path):
        return _protocol_error(status, detail)
    body: dict[str, object] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": _cut(detail),
        "request_id": request_id(),
    }
    named = [{"loc": _cut(fault.loc), "msg": _cut(fault.msg)} for fault in (faults or [])[:MAX_FAULTS]]
    while named:
        response = json_response(body | {"errors": named}, status, content_type=PROBLEM_JSON)
        if len(response.get_data()) < MAX_BYTES:
            return response
        named.pop()
    return json_response(body, status, content_type=PROBLEM_JSON)


def _protocol_error(status: int, detail: str) -> Response:
    """TensorFlow Serving and the Open Inference Protocol have one text; the latter calls every wrong input 400."""
    if status == 422 and request.path.startswith("/v2"):
        status = 400
    return json_response({"error": _cut(detail)}, status)


_DETAILS = {
    404: "there is nothing at this path",
    405: "this path does not take this method",
}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
