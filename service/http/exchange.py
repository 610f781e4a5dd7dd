"""One predict request on its way through the service, whatever protocol it came by."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from loaders.handle import ModelHandle
from loaders.signature import InputSpec
from service.batching.course import Course
from service.http.state import RequestState, state_in
from service.prediction import PredictCall, Prediction, admit, deadline_of, lease_model, predict
from service.runtime import Runtime
from service.settings import Settings
from service.wsgi_environ import ACCEPTED, ANNOUNCED, ARRIVED_AT

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
R = TypeVar("R")

# Reads the body of the request with this environ. What the model takes is told where only one can be meant.
Receive = Callable[[dict[str, Any], Settings, InputSpec | None], T]


class Exchange(NamedTuple, Generic[T]):
    """What came and what became of it. `latency_ms`: since the request came."""

    incoming: T
    prediction: Prediction
    latency_ms: float


def exchange(
    environ: dict[str, Any],
    here: Runtime,
    name: str | None,
    version: str | None,
    receive: Receive[T],
    respond: Callable[[Exchange[T]], R],
) -> R:
    """The answer to the request with this environ, counted with those of its model.

    How long its parts took is kept with its state. name, version: those of the path, None for the default ones. No
    model is held while the body is read, however slowly it comes.
    A request that fails before its model is known counts for the one that its path names, if that is loaded.
    Raises what `receive`, `lease_model`, `predict` and `respond` raise.
    """
    state = state_in(environ)
    try:
        done = _predicted(here, name, version, receive, environ, state)
        predicted_at = time.perf_counter()
        response = respond(done)
    except BaseException:
        model = state.model or here.peek(name, version)
        if model is not None:
            here.statistics(model).failed_request(time.perf_counter() - state.started_at)
        raise
    prediction, ended_at = done.prediction, time.perf_counter()
    answer, in_all_s, written_s = prediction.answer, ended_at - state.started_at, ended_at - predicted_at
    here.statistics(prediction.model).request(
        in_all_s, answer.queue_s, prediction.preprocess_s, answer.model_s, prediction.present_s + written_s
    )
    return response


def _predicted(
    here: Runtime,
    name: str | None,
    version: str | None,
    receive: Receive[T],
    environ: dict[str, Any],
    state: RequestState,
) -> Exchange[T]:
    entered_at: float = environ.get(ARRIVED_AT) or time.monotonic()
    here.await_model_in_memory()
    loaded = admit(here, name, version, was_accepted=environ.get(ACCEPTED, False), entered_at=entered_at)
    is_gone = _is_gone(environ)
    arrival = here.announce()
    try:
        # In this order: at no moment is the request counted nowhere.
        if (announced := environ.get(ANNOUNCED)) is not None:
            announced()
        expected = None if loaded is None or here.has_repository else loaded.input
        incoming = receive(environ, here.settings, expected)
        deadline = deadline_of(here, entered_at, incoming.timeout_s)
        asked = incoming.model_version
        with lease_model(here, name, version, asked, deadline=deadline, arrival=arrival, is_gone=is_gone) as model:
            state.model = model
            call = incoming.call_for(model)
            if here.tracing is not None:
                state.course = Course()
            prediction = predict(
                here,
                model,
                call,
                entered_at=entered_at,
                arrival=arrival,
                is_gone=is_gone,
                request_id=state.request_id(environ),
                course=state.course,
            )
    finally:
        arrival.release()
    state.answer = answer = prediction.answer
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
