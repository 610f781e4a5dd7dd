"""Running a batch so that one bad row costs nobody else an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.batching.faults import FaultKind, classify
from service.batching.tickets import Row
from service.errors import ModelFailed, OutOfMemory, OutputCountMismatch, PredictionFailed

Run = Callable[[list[Any]], Any]


class FatalModelError(Exception):
    """The device or the model is beyond repair; the worker must end."""


@dataclass(slots=True)
class Outcome:
    """What became of a row: its result, or its error when that is not None."""

    result: Any = None
    error: PredictionFailed | None = None


def run_isolated(
    run: Run, rows: Sequence[Row], *, wanted: Callable[[Row], bool], on_split: Callable[[FaultKind, int], None]
) -> tuple[list[Outcome], int]:
    """Run the model on `rows`; returns an outcome for each, in order, and the number of model calls.

    When the model raises, the batch is halved until the culprits are alone: for one culprit among n rows at most
    1 + 2*log2(n) calls (n a power of two), never more than 2n - 1. Rows that nobody wants any more are left out of
    the extra calls. `on_split` hears why and how large a call failed, before its halves run. A wrong number of
    results fails all rows of that call, without a retry: the model is at fault, and which row belongs to which
    result cannot be known. Raises FatalModelError when a retry cannot help.
    """
    outcomes = [Outcome() for _ in rows]
    calls = 0
    parts = [list(range(len(rows)))]
    while parts:
        part = parts.pop()
        if calls:
            part = [position for position in part if wanted(rows[position])]
        if not part:
            continue
        calls += 1
        try:
            results = own_results(run([rows[position].payload for position in part]), len(part))
        except OutputCountMismatch as error:
            for position in part:
                outcomes[position].error = OutputCountMismatch(str(error))
        except Exception as error:
            kind = classify(error)
            if kind is FaultKind.FATAL:
                raise FatalModelError(f"{type(error).__name__} on the device") from error
            if len(part) == 1:
                outcomes[part[0]].error = _failure(kind, error)
            else:
                on_split(kind, len(part))
                middle = (len(part) + 1) // 2
                parts += [part[middle:], part[:middle]]
        else:
            for position, result in zip(part, results, strict=True):
                outcomes[position].result = result
    return outcomes, calls


def own_results(results: Any, expected: int) -> list[Any]:
    """The model's results as a list whose items share no memory with a buffer that a later call may overwrite.

    Raises OutputCountMismatch unless there are exactly `expected` of them.
    """
    if isinstance(results, (str, bytes, dict)) or not hasattr(results, "__len__") or getattr(results, "ndim", 1) == 0:
        raise OutputCountMismatch(f"output count: the model gave one {type(results).__name__} for {expected} rows")
    if len(results) != expected:
        raise OutputCountMismatch(f"output count: the model gave {len(results)} results for {expected} rows")
    return list(_own(results))


def _own(value: Any) -> Any:
    """A copy of every array and container in `value`; anything else is taken to be immutable."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_own(item) for item in value]
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
