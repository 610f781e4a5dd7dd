"""One predict request on its way through the service, whatever protocol it came by."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from flask import request

from loaders.handle import ModelHandle
from loaders.signature import InputSpec
from service.http.blueprint import runtime
from service.http.state import state_in
from service.prediction import PredictCall, Prediction, admit, deadline_of, lease_model, predict
from service.settings import Settings
from service.wsgi_environ import ACCEPTED, ARRIVED_AT

# Linux tells when the other side has closed its half; elsewhere only a connection that is closed both ways shows.
_HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)


class Incoming(Protocol):
    """A body that has been read. What it asks of the model is told once it is known which model answers."""

    @property
    def model_version(self) -> str | None: ...

    @property
    def timeout_s(self) -> float | None: ...

    def call_for(self, model: ModelHandle) -> PredictCall: ...


T = TypeVar("T", bound=Incoming)


@dataclass(frozen=True, slots=True)
class Exchange(Generic[T]):
    """What came and what became of it. `latency_ms`: since the request came."""

    incoming: T
    prediction: Prediction
    latency_ms: float


def exchange(name: str | None, version: str | None, receive: Callable[[Settings, InputSpec | None], T]) -> Exchange[T]:
    """Read the request, have the model answer it, and tell its headers how long each part took.

    name, version: those of the path, None for the default ones. receive: reads the body; what the model takes is told
    to it where only one model can be meant. No model is held while the body is read, however slowly it comes.
    Raises what `receive`, `lease_model` and `predict` raise.
    """
    environ = request.environ
    entered_at: float = environ.get(ARRIVED_AT) or time.monotonic()
    state = state_in(environ)
    here = runtime()
    here.await_model_in_memory()
    admit(here, name, version, was_accepted=environ.get(ACCEPTED, False), entered_at=entered_at)
    is_gone = _is_gone(environ)
    arrival = here.announce()
    try:
        peeked = None if here.has_repository else here.peek(name, version)
        incoming = receive(here.settings, None if peeked is None else peeked.input)
        deadline = deadline_of(here, entered_at, incoming.timeout_s)
        asked = incoming.model_version
        with lease_model(here, name, version, asked, deadline=deadline, arrival=arrival, is_gone=is_gone) as model:
            state.model = model
            call = incoming.call_for(model)
            prediction = predict(here, model, call, entered_at=entered_at, arrival=arrival, is_gone=is_gone)
    finally:
        arrival.release()
    answer = prediction.answer
    state.phases = (
        f"preprocess;dur={prediction.preprocess_s * 1000:.3f}, queue;dur={answer.queue_s * 1000:.3f}, "
        f"model;dur={answer.model_s * 1000:.3f}, "
    )
    return Exchange(incoming, prediction, (time.perf_counter() - state.started_at) * 1000)


def _is_gone(environ: dict[str, Any]) -> Callable[[], bool] | None:
    """A test whether the client has closed its connection; None where the server does not give the socket."""
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return None

    def gone() -> bool:
        # Asks for the end of the stream alone: it takes no byte of a next request, and works under TLS.
        poll = select.poll()
        try:
            poll.register(connection, _HANG_UP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # closed on our side
            return True

    return gone
