"""Does a row's answer depend on its neighbours? Batching is only right for models of which that is not true."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loaders.handle import ModelHandle
from loaders.signature import OutputSpec
from service.batching.faults import text_of
from service.models.examples import varied_rows
from service.models.warmup import Predict
from service.outputs import present

# Of the largest number that the model gives at that place. Kernels differ with the batch size, which shows in the last
# digits of float32; in 16 bits these are the third.
TOLERANCE = 1e-4
TOLERANCE_16_BITS = 2e-2

_RAW = OutputSpec()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`finding`: what is wrong, in one sentence. `not_done`: why nothing could be checked. Both None: all is well."""

    finding: str | None = None
    not_done: str | None = None


def self_check(model: ModelHandle, batch_size: int, predict: Predict) -> CheckResult:
    """Whether made-up rows are answered alike alone and in a full batch. *Thread:* worker."""
    rows = varied_rows(model.input, batch_size)
    if rows is None:
        return CheckResult(not_done=_not_done("no row can be made up for its input"))
    chosen = sorted({0, batch_size // 2, batch_size - 1})
    try:
        batch = predict(model, rows, {})
        together = [present(_RAW, batch[position]) for position in chosen]
        alone = [present(_RAW, predict(model, [rows[position]], {})[0]) for position in chosen]
    except Exception as error:
        # A made-up row may be none that the model was made for, and proves nothing then.
        return CheckResult(not_done=_not_done(f"it failed on made-up rows ({text_of(error)})"))
    limit = _tolerance(model)
    worst = difference(alone, together)
    if worst <= limit:
        return CheckResult()
    much = "in kind" if math.isinf(worst) else f"by {worst:.2g} of its size (limit {limit:g})"
    return CheckResult(
        f"an answer depends on its neighbours: it differs {much} between a row alone and the same row in a batch of "
        f"{batch_size} (SELF_CHECK)"
    )


def difference(alone: list[Any], together: list[Any]) -> float:
    """The largest difference between two lists of results, as a share of the largest number at the same place.

    alone and together: presented results of the same rows, that is plain JSON types and arrays. Infinite where they
    differ in kind, shape or in what is not a number.
    """
    worst = 0.0
    for one, other in zip(map(dict, map(_places, alone)), map(dict, map(_places, together)), strict=True):
        if one.keys() != other.keys():
            return math.inf
    ours, theirs = _by_place(alone), _by_place(together)
    for place, values in ours.items():
        worst = max(worst, _gap(values, theirs[place]))
    return worst


def _by_place(results: list[Any]) -> dict[str, list[npt.NDArray[Any]]]:
    found: dict[str, list[npt.NDArray[Any]]] = {}
    for result in results:
        for place, value in _places(result):
            found.setdefault(place, []).append(value)
    return found


def _places(result: Any, place: str = "") -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Every part of a result with the way to it; numbers that stand side by side are one part."""
    children: list[tuple[Any, Any]] = []
    if isinstance(result, Mapping):
        children = list(result.items())
    elif isinstance(result, list):
        children = list(enumerate(result))
    if not all(isinstance(value, int | float) for _, value in children):
        for key, value in children:
            yield from _places(value, f"{place}/{key}")
    elif isinstance(result, Mapping):
        yield f"{place}/{'/'.join(map(str, result))}", np.asarray(list(result.values()))
    else:
        yield place, np.asarray(result)


def _gap(ours: list[npt.NDArray[Any]], theirs: list[npt.NDArray[Any]]) -> float:
    if [value.shape for value in ours] != [value.shape for value in theirs]:
        return math.inf
    if any(value.dtype.kind not in "fiu" for value in (*ours, *theirs)):
        return 0.0 if all(map(np.array_equal, ours, theirs)) else math.inf
    size = max(float(np.abs(value.astype(np.float64)).max(initial=0.0)) for value in (*ours, *theirs))
    gaps = (float(np.abs(a.astype(np.float64) - b).max(initial=0.0)) for a, b in zip(ours, theirs, strict=True))
    return max(gaps) / size if size else 0.0


def _not_done(why: str) -> str:
    return f"whether answers depend on their neighbours could not be checked: {why} (SELF_CHECK)"


def _tolerance(model: ModelHandle) -> float:
    computed_in = model.metadata.get("model", {}).get("dtype")
    in_16_bits = computed_in in ("float16", "bfloat16") or getattr(model.input, "dtype", None) == "float16"
    return TOLERANCE_16_BITS if in_16_bits else TOLERANCE
