"""Running a batch so that one bad row costs nobody else an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from service.batching.faults import FaultKind, classify, text_of
from service.batching.tickets import Row
from service.errors import ModelFailed, OutOfMemory, OutputCountMismatch, PredictionFailed

Run = Callable[[list[Any]], Any]

# Most results are one of these; asking once saves seven questions for each row.
_SCALARS = frozenset({int, float, bool, str, type(None)})


class FatalModelError(Exception):
    """The device or the model is beyond repair; the worker must end."""


@dataclass(slots=True)
class Outcomes:
    """What became of the rows of a batch, by position.

    `errors`: the rows that failed. `left_out`: the rows that nobody wanted any more when their turn came; they have
    no outcome. All others have their result in `results`. `runs`: model calls.
    """

    results: list[Any]
    errors: dict[int, PredictionFailed] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)
    runs: int = 0


def run_isolated(
    run: Run, rows: Sequence[Row], *, wanted: Callable[[Row], bool], on_split: Callable[[FaultKind, int], None]
) -> Outcomes:
    """Run the model on `rows`, at least one.

    When the model raises, the batch is halved until the culprits are alone: for one culprit among n rows at most
    1 + 2*log2(n) calls (n a power of two), never more than 2n - 1. Rows that nobody wants any more are left out of
    the extra calls. `on_split` hears why and how large a call failed, before its halves run. A wrong number of
    results fails all rows of that call, without a retry: the model is at fault, and which row belongs to which
    result cannot be known. Raises FatalModelError when a retry cannot help.
    """
    outcomes = Outcomes([None] * len(rows))
    results: list[Any] = []
    error: Exception | None = None
    parts = [list(range(len(rows)))]
    try:
        while parts:
            part = parts.pop()
            if outcomes.runs:
                outcomes.left_out.update(position for position in part if not wanted(rows[position]))
                part = [position for position in part if position not in outcomes.left_out]
            if not part:
                continue
            outcomes.runs += 1
            results, error = _attempt(run, [rows[position].payload for position in part])
            # No isinstance here or below: it may ask the error itself, which a model made and which may raise again.
            if error is None and len(part) == len(rows):
                outcomes.results = results
            elif error is None:
                for position, result in zip(part, results, strict=True):
                    outcomes.results[position] = result
            elif issubclass(type(error), OutputCountMismatch):
                for position in part:
                    outcomes.errors[position] = OutputCountMismatch(text_of(error))
            else:
                kind = classify(error)
                if kind is FaultKind.FATAL:
                    raise FatalModelError(f"{type(error).__name__} on the device") from error
                if len(part) == 1:
                    outcomes.errors[part[0]] = _failure(kind, error)
                else:
                    on_split(kind, len(part))
                    middle = (len(part) + 1) // 2
                    parts += [part[middle:], part[:middle]]
        return outcomes
    finally:
        # An error of the model keeps this frame alive; see the worker, which lets go of the same things.
        del rows, outcomes, results, error


def own_results(results: Any, expected: int) -> list[Any]:
    """The model's results as a list whose items share no memory with a buffer that a later call may overwrite.

    Raises OutputCountMismatch unless there are exactly `expected` of them, in an order.
    """
    if type(results) is not list:
        results = _in_an_order(results, expected)
    # Counted only when they are listed: the length that an object claims need not be what it yields.
    owned = list(_own(results))
    if len(owned) != expected:
        raise OutputCountMismatch(f"output count: the model gave {len(owned)} results for {expected} rows")
    return owned


def _in_an_order(results: Any, expected: int) -> Any:
    """What has one result after the other; raises OutputCountMismatch for what is one result itself."""
    if hasattr(results, "to_numpy"):  # a data frame, which would iterate over its columns
        results = results.to_numpy()
    single = (str, bytes, bytearray, Mapping, Set)
    if isinstance(results, single) or not hasattr(results, "__len__") or getattr(results, "ndim", 1) == 0:
        raise OutputCountMismatch(f"output count: the model gave one {type(results).__name__} for {expected} rows")
    return results


def _attempt(run: Run, payloads: list[Any]) -> tuple[list[Any], Exception | None]:
    """The model's own results, and what it raised instead.

    A function of its own: the error's traceback keeps the frame that caught it, which must not hold the error.
    """
    try:
        return own_results(run(payloads), len(payloads)), None
    except Exception as error:
        return [], error


def _own(value: Any) -> Any:
    """A copy of every array and container in `value`; anything else is taken to be immutable."""
    if type(value) in _SCALARS:
        return value
    if type(value) is list:
        return [_own(item) for item in value]
    if isinstance(value, (np.ndarray, np.void)):
        # The copy of an array of objects would still share the objects.
        return _own(value.tolist()) if value.dtype.hasobject else value.copy()
    if isinstance(value, Mapping):
        return {key: _own(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_own(item) for item in value]
    if isinstance(value, tuple):
        items = [_own(item) for item in value]
        return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if hasattr(value, "detach") and hasattr(value, "clone"):  # a torch tensor, without importing torch
        return value.detach().clone()
    return value


def _failure(kind: FaultKind, cause: Exception) -> PredictionFailed:
    error: PredictionFailed
    if kind is FaultKind.OUT_OF_MEMORY:
        error = OutOfMemory("there is not enough memory for this input, even alone")
    else:
        error = ModelFailed("the model failed on this input")
    error.__cause__ = cause
    return error
