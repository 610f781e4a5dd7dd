"""From one request, whatever protocol it came by, to its predictions: check, prepare, batch, present."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from loaders.handle import ModelHandle
from loaders.signature import OutputSpec
from service.batching.admission import Arrival
from service.batching.course import Course
from service.batching.tickets import Answer, Priority
from service.errors import (
    ClientGone,
    DeadlineExceeded,
    Draining,
    Fault,
    InvalidInput,
    JitneyError,
    PredictionFailed,
    QueueFull,
    TooLarge,
    UnknownVersion,
    VersionMismatch,
    WorkerDead,
)
from service.inputs import InputLimits, MayBeRounded, PreparedRow, prepare
from service.inputs.nesting import MAX_DEPTH, refuse_if_deep
from service.inputs.numbers import raise_if_rounded
from service.lane_key import LaneKey
from service.models.loaded import Lease
from service.outputs import present
from service.runtime import Runtime

_RAW = OutputSpec()

# What a client can do about its deadline.
_DEADLINE = "the request's own timeout, at most REQUEST_TIMEOUT_MS"

# The word that each is counted under.
_REJECTIONS: dict[type[JitneyError], str] = {
    QueueFull: "queue_full",
    DeadlineExceeded: "deadline",
    Draining: "draining",
    WorkerDead: "worker_dead",
}


# Named tuples, because they are made in a third of the time of frozen dataclasses, and for each request.
class PredictCall(NamedTuple):
    """What a caller asks for.

    `instances`: parsed JSON values, arrays, or bytes of pictures. `model_version`: the version that the body asks for.
    `timeout_s`: the caller's own deadline, seconds. `priority`: who goes first. `parameters`: options of the model.
    `reread`: gives the call with integers beyond 64 bits as they were sent, when floats may stand for them here.
    """

    instances: list[Any]
    model_version: str | None = None
    timeout_s: float | None = None
    parameters: Mapping[str, Any] = MappingProxyType({})
    priority: Priority = Priority.NORMAL
    reread: Callable[[], PredictCall] | None = None


class Prediction(NamedTuple):
    """What the caller gets. `predictions[i]` and `truncated[i]` belong to instance i.

    `classes`: names of the classes in the order of the probabilities, when probabilities were asked for.
    `preprocess_s`, `present_s`: what it took to make rows of the instances, and predictions of the results, seconds.
    """

    model: ModelHandle
    predictions: list[Any]
    truncated: list[bool]
    classes: list[Any] | None
    answer: Answer
    preprocess_s: float
    present_s: float


def admit(
    runtime: Runtime,
    name: str | None,
    version: str | None,
    *,
    was_accepted: bool,
    entered_at: float | None = None,
    ahead: int | None = None,
) -> ModelHandle | None:
    """Refuse a request for what cannot be answered, before its body is read.

    Returns the model where it is loaded already, for information.
    Raises UnknownModel, NotReady or Draining; DeadlineExceeded for one that has waited for too long since
    `entered_at`; QueueFull where there are `ahead` rows and requests before it, and no thread that predicts will take
    it. was_accepted: the request came before the service was told to stop, and is served.
    """
    try:
        loaded = runtime.check(name, version, was_accepted=was_accepted)
        if ahead is not None:
            raise no_room(runtime, ahead)
        if entered_at is not None and (now := time.monotonic()) >= deadline_of(runtime, entered_at, None):
            raise DeadlineExceeded(now - entered_at, _DEADLINE, limit_s=limit_of(runtime, None))
        return loaded
    except (Draining, QueueFull, DeadlineExceeded) as error:
        model = runtime.peek(name, version) or runtime.model
        if model is not None:
            runtime.metrics.rejected(model, _REJECTIONS[type(error)])
        raise


def no_room(runtime: Runtime, ahead: int) -> QueueFull:
    """The refusal of a request that finds `ahead` rows and requests before it, too many to wait with them."""
    return QueueFull(1, ahead, runtime.settings.max_queue_size, runtime.batcher().retry_after_s(ahead))


def lease_model(
    runtime: Runtime,
    name: str | None,
    version: str | None,
    asked: str | None,
    *,
    deadline: float,
    arrival: Arrival,
    is_gone: Callable[[], bool] | None = None,
) -> Lease:
    """The right to use the model that answers, loaded now if it has to be.

    name, version: those of the path, None for the default ones. asked: the version that the body asks for. Raises what
    `Runtime.lease` raises, and VersionMismatch when it is the body that asks for a version which is not served.
    """
    if version is not None and asked not in (None, version):
        raise VersionMismatch(str(asked), [version])
    wanted = asked if version is None else version
    if wanted == "":
        raise VersionMismatch("", [one.version for one in runtime.known_models() if name in (None, one.name)])
    lease = runtime.lease_now(name, wanted)
    if lease is not None:
        return lease
    arrival.release()  # nobody else's batch is to wait for a model that has to be loaded first
    try:
        return runtime.lease(name, wanted, deadline=deadline, is_gone=is_gone)
    except UnknownVersion as error:
        if asked is None or version is not None:
            raise
        raise VersionMismatch(asked, error.served) from None


def deadline_of(runtime: Runtime, entered_at: float, timeout_s: float | None) -> float:
    """When a request is given up, `time.monotonic()`: at its own deadline, or at REQUEST_TIMEOUT_MS.

    entered_at: when it came. timeout_s: its own deadline, None for the default.
    """
    return entered_at + limit_of(runtime, timeout_s)


def limit_of(runtime: Runtime, timeout_s: float | None) -> float:
    """How long a request may take, seconds, that asks for `timeout_s`, or for nothing."""
    limit_s = runtime.settings.request_timeout_ms / 1000
    return limit_s if timeout_s is None else min(timeout_s, limit_s)


def predict(
    runtime: Runtime,
    model: ModelHandle,
    call: PredictCall,
    *,
    entered_at: float | None = None,
    arrival: Arrival | None = None,
    is_gone: Callable[[], bool] | None = None,
    request_id: str = "",
    course: Course | None = None,
) -> Prediction:
    """The answer to `call`; raises a `JitneyError` instead of giving a wrong or partial one.

    entered_at: when the request came, `time.monotonic()`; reading and preparing it counts against its deadline.
    request_id: what the log is to call it. course: is filled in with how far it came in the batcher.

    *Thread:* the request's own; it blocks until the answer is there, at most until the deadline.
    """
    started_at = time.perf_counter()
    entered_at = time.monotonic() if entered_at is None else entered_at
    call, parameters, rows = _read_rows(runtime, model, call)
    preprocess_s = time.perf_counter() - started_at
    runtime.metrics.preprocessed(model, preprocess_s)
    key = LaneKey(model, parameters, rows[0].shape_key)
    answer = _ask(runtime, key, rows, call, entered_at, arrival, is_gone, request_id, course)
    proba = call.parameters.get("proba", False)
    answered_at = time.perf_counter()
    predictions = _presented(runtime, model, _RAW if proba else model.output, answer)
    present_s = time.perf_counter() - answered_at
    truncated = [row.truncated for row in rows]
    classes = list(model.metadata.get("classes", ())) if proba else None
    return Prediction(model, predictions, truncated, classes, answer, preprocess_s, present_s)


def _read_rows(
    runtime: Runtime, model: ModelHandle, call: PredictCall
) -> tuple[PredictCall, tuple[tuple[str, str, Any], ...], list[PreparedRow]]:
    """The call, its parameters and its rows; read anew where a float would stand for an integer that it is not."""
    try:
        return call, _accepted(call, model), _prepared(runtime, model, call)
    except MayBeRounded:
        assert call.reread is not None
        call = call.reread()
        return call, _accepted(call, model), _prepared(runtime, model, call)


def _ask(
    runtime: Runtime,
    key: LaneKey,
    rows: list[PreparedRow],
    call: PredictCall,
    entered_at: float,
    arrival: Arrival | None,
    is_gone: Callable[[], bool] | None,
    request_id: str,
    course: Course | None,
) -> Answer:
    """Have the batcher answer, and count it when it does not."""
    deadline = deadline_of(runtime, entered_at, call.timeout_s)
    try:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded(0.0)
        return runtime.batcher().ask(
            [row.payload for row in rows],
            left_s,
            key=key,
            lengths=[row.length for row in rows],
            priority=call.priority,
            arrival=arrival,
            is_gone=is_gone,
            origin=None if runtime.tracing is None else runtime.tracing.origin(),
            request_id=request_id,
            course=course,
        )
    except (QueueFull, DeadlineExceeded, Draining, WorkerDead) as error:
        runtime.metrics.rejected(key.model, _REJECTIONS[type(error)])
        if isinstance(error, DeadlineExceeded):
            waited_s, limit_s = time.monotonic() - entered_at, limit_of(runtime, call.timeout_s)
            raise DeadlineExceeded(waited_s, _DEADLINE, limit_s=limit_s) from error
        raise
    except ClientGone:
        runtime.metrics.abandoned(key.model, len(rows))
        raise


def _accepted(call: PredictCall, model: ModelHandle) -> tuple[tuple[str, str, Any], ...]:
    """The parameters as part of a lane's key; raises InvalidInput for one that the model does not take."""
    parameters = call.parameters
    if not parameters:
        return ()
    if call.reread is not None:
        raise_if_rounded(parameters.values())
    faults = []
    taken = []
    for name, value in parameters.items():
        if name not in model.parameters:
            known = ", ".join(sorted(model.parameters)) or "none"
            # The name is the caller's own text, and is not repeated.
            faults.append(Fault("parameters", f"hold one that this model does not take; it takes: {known}"))
        elif not isinstance(value, (bool, int, float, str)):
            faults.append(Fault(f"parameters.{name}", "must be a string, a number or a boolean"))
        elif name == "proba" and not isinstance(value, bool):
            faults.append(Fault("parameters.proba", "must be true or false"))
        else:
            taken.append((name, _distinct(value), value))
    if faults:
        refuse_if_deep(parameters, MAX_DEPTH - 1)
        raise InvalidInput(*faults)
    return tuple(sorted(taken) if len(taken) > 1 else taken)


def _distinct(value: Any) -> str:
    """What tells values apart that Python finds equal: 1, 1.0 and true by their type, 0.0 and -0.0 by their sign."""
    return f"float {value!r}" if isinstance(value, float) else type(value).__name__


def _prepared(runtime: Runtime, model: ModelHandle, call: PredictCall) -> list[PreparedRow]:
    settings, instances = runtime.settings, call.instances
    if not instances:
        raise InvalidInput.at("instances", "must hold at least one instance")
    if len(instances) > settings.max_instances:
        raise TooLarge(f"the number of instances, {len(instances)},", settings.max_instances, "MAX_INSTANCES")
    if len(instances) > settings.max_queue_size:
        # It could never enter, so to ask again later would be in vain.
        raise TooLarge(f"the number of instances, {len(instances)},", settings.max_queue_size, "MAX_QUEUE_SIZE")
    limits = InputLimits(settings.max_image_pixels, settings.max_text_chars, call.reread is not None)
    try:
        rows = prepare(model.input, instances, limits, model.metadata.get("column_types", ()))
    except InvalidInput:
        refuse_if_deep(instances, MAX_DEPTH - 1)
        raise
    for position, row in enumerate(rows):
        if row.shape_key != rows[0].shape_key:
            raise InvalidInput.at(
                f"instances[{position}]", "differs in shape from instances[0]; the rows of one request must be alike"
            )
    return rows


def _presented(runtime: Runtime, model: ModelHandle, spec: OutputSpec, answer: Answer) -> list[Any]:
    predictions = []
    failures: dict[int, PredictionFailed] = {}
    for position, result in enumerate(answer.results):
        try:
            predictions.append(present(spec, result))
        except PredictionFailed as error:
            runtime.metrics.failed_rows(model, error.reason, 1)
            failures[position] = error
    if failures:
        first = next(iter(failures.values()))
        first.rows = tuple(failures)
        try:
            raise first
        finally:
            del first, failures  # which hold this frame, and it them, until the garbage collector comes
    return predictions
