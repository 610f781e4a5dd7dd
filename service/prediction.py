"""From one request, whatever protocol it came by, to its predictions: check, prepare, batch, present."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loaders.handle import ModelHandle
from loaders.signature import OutputSpec
from service.batching.admission import Arrival
from service.batching.tickets import Answer
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
    VersionMismatch,
    WorkerDead,
)
from service.inputs import InputLimits, MayBeRounded, PreparedRow, prepare
from service.inputs.nesting import MAX_DEPTH, refuse_if_deep
from service.inputs.numbers import raise_if_rounded
from service.models.loaded import Lease
from service.outputs import present
from service.runtime import LaneKey, Runtime

_RAW = OutputSpec()

# What a client can do about its deadline.
_DEADLINE = "timeout_ms of the request, at most REQUEST_TIMEOUT_MS"

# The word that each is counted under.
_REJECTIONS: dict[type[JitneyError], str] = {
    QueueFull: "queue_full",
    DeadlineExceeded: "deadline",
    Draining: "draining",
    WorkerDead: "worker_dead",
}


@dataclass(frozen=True, slots=True)
class PredictCall:
    """What a caller asks for.

    `instances`: parsed JSON values, or bytes of pictures. `model_version`: the version that the body insists on.
    `timeout_s`: the caller's own deadline, seconds. `parameters`: options of the model. `reread`: gives the call with
    integers beyond 64 bits as they were sent, when floats may stand for them here.
    """

    instances: list[Any]
    model_version: str | None = None
    timeout_s: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    reread: Callable[[], PredictCall] | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the caller gets. `predictions[i]` and `truncated[i]` belong to instance i.

    `classes`: names of the classes in the order of the probabilities, when probabilities were asked for.
    """

    model: ModelHandle
    predictions: list[Any]
    truncated: list[bool]
    classes: list[Any] | None
    answer: Answer
    preprocess_s: float


def lease_model(runtime: Runtime, name: str | None, version: str | None, *, was_accepted: bool = False) -> Lease:
    """The right to use the model that a path names (None: the default one), until the lease ends.

    Raises UnknownModel, NotReady, Draining or DeadlineExceeded. was_accepted: the request came before the service was
    told to stop, and is served.
    """
    try:
        return runtime.lease(name, version, was_accepted=was_accepted)
    except Draining:
        model = runtime.model
        if model is not None:
            runtime.metrics.rejected(model, "draining")
        raise


def lease_other_version(runtime: Runtime, model: ModelHandle, call: PredictCall) -> Lease | None:
    """The version that the body asks for instead of the default one; None when it is that, or is not to be had."""
    asked = call.model_version
    if asked is None or asked == model.version or not runtime.offers(model.name, asked):
        return None
    return runtime.lease(model.name, asked, was_accepted=True)


def predict(
    runtime: Runtime,
    model: ModelHandle,
    call: PredictCall,
    *,
    entered_at: float | None = None,
    arrival: Arrival | None = None,
    is_gone: Callable[[], bool] | None = None,
) -> Prediction:
    """The answer to `call`; raises a `JitneyError` instead of giving a wrong or partial one.

    entered_at: when the request came, `time.monotonic()`; reading and preparing it counts against its deadline.

    *Thread:* the request's own; it blocks until the answer is there, at most until the deadline.
    """
    started_at = time.perf_counter()
    if entered_at is None:
        entered_at = time.monotonic()
    if call.model_version is not None and call.model_version != model.version:
        raise VersionMismatch(call.model_version, model.version)
    try:
        parameters, rows = _accepted(call, model), _prepared(runtime, model, call)
    except MayBeRounded:
        assert call.reread is not None
        call = call.reread()
        parameters, rows = _accepted(call, model), _prepared(runtime, model, call)
    preprocess_s = time.perf_counter() - started_at
    runtime.metrics.preprocessed(model, preprocess_s)
    limit_s = runtime.settings.request_timeout_ms / 1000
    if call.timeout_s is not None:
        limit_s = min(call.timeout_s, limit_s)
    passed_s = time.monotonic() - entered_at
    try:
        if passed_s >= limit_s:
            raise DeadlineExceeded(passed_s, _DEADLINE)
        answer = runtime.batcher().ask(
            [row.payload for row in rows],
            limit_s - passed_s,
            key=LaneKey(model, parameters, rows[0].shape_key),
            lengths=[row.length for row in rows],
            arrival=arrival,
            is_gone=is_gone,
        )
    except (QueueFull, DeadlineExceeded, Draining, WorkerDead) as error:
        runtime.metrics.rejected(model, _REJECTIONS[type(error)])
        if isinstance(error, DeadlineExceeded):
            raise DeadlineExceeded(time.monotonic() - entered_at, _DEADLINE) from error
        raise
    except ClientGone:
        runtime.metrics.abandoned(model, len(rows))
        raise
    proba = call.parameters.get("proba", False)
    return Prediction(
        model=model,
        predictions=_presented(runtime, model, _RAW if proba else model.output, answer),
        truncated=[row.truncated for row in rows],
        classes=list(model.metadata.get("classes", ())) if proba else None,
        answer=answer,
        preprocess_s=preprocess_s,
    )


def _accepted(call: PredictCall, model: ModelHandle) -> tuple[tuple[str, str, Any], ...]:
    """The parameters as part of a lane's key; raises InvalidInput for one that the model does not take."""
    parameters = call.parameters
    if call.reread is not None:
        raise_if_rounded(parameters.values())
    faults = []
    for name, value in parameters.items():
        if name not in model.parameters:
            known = ", ".join(sorted(model.parameters)) or "none"
            # The name is the caller's own text, and is not repeated.
            faults.append(Fault("parameters", f"hold one that this model does not take; it takes: {known}"))
        elif not isinstance(value, (bool, int, float, str)):
            faults.append(Fault(f"parameters.{name}", "must be a string, a number or a boolean"))
        elif name == "proba" and not isinstance(value, bool):
            faults.append(Fault("parameters.proba", "must be true or false"))
    if faults:
        refuse_if_deep(parameters, MAX_DEPTH - 1)
        raise InvalidInput(*faults)
    return tuple(sorted((name, _distinct(value), value) for name, value in parameters.items()))


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
    limits = InputLimits(settings.max_image_pixels, settings.max_text_chars, may_be_rounded=call.reread is not None)
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
        raise first
    return predictions
