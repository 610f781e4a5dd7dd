"""Errors on their way from the owner to a front end: the same class, with the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaders.errors import (
    BundleError,
    DeviceError,
    MissingDependencyError,
    ModelError,
    ModelLoadError,
    UnknownFormatError,
    UnsafePathError,
    UntrustedModelError,
)
from service.batching.faults import text_of
from service.errors import (
    Draining,
    JitneyError,
    ModelFailed,
    NonFiniteOutput,
    NotReady,
    OutOfMemory,
    OutputCountMismatch,
    PredictionFailed,
    QueueFull,
    SchedulerFailed,
    WorkerDead,
)
from service.sharing.frames import FrameError

_OF_THE_MODEL: tuple[type[PredictionFailed], ...] = (
    ModelFailed,
    NonFiniteOutput,
    OutOfMemory,
    OutputCountMismatch,
    PredictionFailed,
    SchedulerFailed,
)
_OF_THE_DOOR: tuple[type[JitneyError], ...] = (Draining, WorkerDead)

# By the names of their classes, of which every part of a model's path has its own.
_LOAD_ERRORS: dict[str, type[ModelError]] = {
    error.__name__: error
    for error in (
        BundleError,
        DeviceError,
        MissingDependencyError,
        ModelError,
        ModelLoadError,
        UnknownFormatError,
        UnsafePathError,
        UntrustedModelError,
    )
}


def described(error: BaseException) -> list[Any]:
    """An error in JSON types. What is none of the batcher's own becomes a WorkerDead that tells no more than that."""
    if type(error) is QueueFull:
        return ["QueueFull", error.rows, error.queued, error.limit, error.retry_after_s]
    if type(error) is NotReady:
        return ["NotReady", str(error), error.retry_after_s]
    if isinstance(error, PredictionFailed):
        kind = type(error) if type(error) in _OF_THE_MODEL else PredictionFailed
        return [kind.__name__, str(error), *error.rows]
    if type(error) in _OF_THE_DOOR:
        return [type(error).__name__, str(error)]
    return ["WorkerDead", "the process that owns the model failed"]


def restored(told: Any) -> JitneyError:
    """The error that `described` was given; raises FrameError for anything else."""
    try:
        name, *data = told
        return _MAKERS[name](data)
    except (ValueError, TypeError, LookupError) as error:
        raise FrameError("a failure is not described as it should be") from error


def described_load_error(error: BaseException) -> list[str]:
    """Why the owner has no model, in JSON types."""
    return [type(error).__name__, text_of(error)]


def restored_load_error(told: Any) -> ModelError:
    """Why the owner has no model, as it would be told in the process that tried to load it; raises FrameError."""
    try:
        name, text = told
        kind = _LOAD_ERRORS.get(name)
    except (ValueError, TypeError) as error:
        raise FrameError("a failed load is not described as it should be") from error
    return ModelError(f"{name}: {text}") if kind is None else kind(str(text))


def _of_the_model(kind: type[PredictionFailed]) -> Callable[[list[Any]], JitneyError]:
    return lambda data: kind(str(data[0]), tuple(map(int, data[1:])))


def _of_the_door(kind: type[JitneyError]) -> Callable[[list[Any]], JitneyError]:
    return lambda data: kind(str(data[0]))


_MAKERS: dict[str, Callable[[list[Any]], JitneyError]] = {
    "QueueFull": lambda data: QueueFull(*data),
    "NotReady": lambda data: NotReady(*data),
    **{kind.__name__: _of_the_model(kind) for kind in _OF_THE_MODEL},
    **{kind.__name__: _of_the_door(kind) for kind in _OF_THE_DOOR},
}
