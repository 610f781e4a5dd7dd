"""What is known of one request beside what Flask knows: kept in its WSGI environ, where looking it up costs least."""

from __future__ import annotations

import time
from typing import Any, cast

from flask import Request, request

from loaders.handle import ModelHandle
from service.batching.course import Course
from service.batching.tickets import Answer
from service.http.places import PlaceOf
from service.request_id import accepted_id, new_id

_KEY = "jitney.state"


class RequestState:
    """One request. `model`: the one that answers, once it is known. `answer`: what the batcher gave. `phases`: how long
    its parts took, for the header. `problem`: the title of the error that it ended with.

    `course`: how far it came in the batcher, kept only where requests are traced.

    `is_refused`: nothing is at its path, which is one of Jitney's. `place_of`: how its caller knows each row, where it
    was not sent as an instance. *Thread:* the request's own.
    """

    __slots__ = (
        "_request_id",
        "answer",
        "course",
        "is_refused",
        "model",
        "phases",
        "place_of",
        "problem",
        "started_at",
    )

    def __init__(self) -> None:
        self.started_at = time.perf_counter()
        self.model: ModelHandle | None = None
        self.answer: Answer | None = None
        self.course: Course | None = None
        self.phases = ""
        self.problem: str | None = None
        self.is_refused = False
        self.place_of: PlaceOf | None = None
        self._request_id: str | None = None

    def request_id(self, environ: dict[str, Any]) -> str:
        """The caller's own `X-Request-ID` when it is well formed, else a new one; the same for the whole request."""
        if self._request_id is None:
            self._request_id = accepted_id(environ.get("HTTP_X_REQUEST_ID")) or new_id()
        return self._request_id


def current_request() -> Request:
    """The request itself: each look through Flask's proxy costs as much as ten at the object."""
    return cast(Request, request._get_current_object())  # type: ignore[attr-defined]


def state_in(environ: dict[str, Any]) -> RequestState:
    """The state of the request with this environ; it begins when it is first asked for."""
    state: RequestState | None = environ.get(_KEY)
    if state is None:
        state = environ[_KEY] = RequestState()
    return state


def request_id() -> str:
    """The id under which the request that is served now stands in its answer and in the log."""
    environ = current_request().environ
    return state_in(environ).request_id(environ)
