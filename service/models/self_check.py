"""Does a row's answer depend on its neighbours? Batching is only right for models of which that is not true."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from loaders.handle import ModelHandle
from loaders.signature import OutputSpec
from service.batching.faults import text_of
from service.models.examples import varied_rows
from service.models.warmup import Predict
from service.outputs import present

_log = logging.getLogger("jitney")

# Relative to 1 + the number itself. Kernels differ with the batch size, which shows in the last digits of float32; in
# 16 bits these are the third.
TOLERANCE = 1e-4
TOLERANCE_16_BITS = 2e-2

_RAW = OutputSpec()


def self_check(model: ModelHandle, batch_size: int, predict: Predict) -> str | None:
    """What is wrong, in one sentence, when made-up rows are answered differently alone and in a full batch.

    None when they are not, or when no row could be made or answered. *Thread:* worker.
    """
    rows = varied_rows(model.input, batch_size)
    if rows is None:
        return None
    chosen = sorted({0, batch_size // 2, batch_size - 1})
    try:
        together = predict(model, rows, {})
        pairs = [
            (present(_RAW, predict(model, [rows[position]], {})[0]), present(_RAW, together[position]))
            for position in chosen
        ]
    except Exception as error:
        # A made-up row may be none that the model was made for, and proves nothing then.
        _log.info("%s could not be checked with made-up rows: %s", model.name, text_of(error))
        return None
    limit = _tolerance(model)
    worst = max(difference(alone, together) for alone, together in pairs)
    if worst <= limit:
        return None
    much = "in kind" if math.isinf(worst) else f"by {worst:.2g} (limit {limit:g})"
    return (
        f"an answer depends on its neighbours: it differs {much} between a row alone and the same row in a batch of "
        f"{batch_size} (SELF_CHECK)"
    )


def difference(one: Any, other: Any) -> float:
    """The largest difference of two results, as a share of 1 + the number; infinite where they are not comparable.

    One and other: presented results, that is plain JSON types and arrays.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return math.inf
        return max((difference(one[key], other[key]) for key in one), default=0.0)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return math.inf
        return max((difference(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return math.inf
    if first.dtype.kind not in "fiu" or second.dtype.kind not in "fiu":
        return 0.0 if np.array_equal(first, second) else math.inf
    gap = np.abs(first.astype(np.float64) - second) / (1 + np.abs(first.astype(np.float64)))
    return float(gap.max(initial=0.0))


def _tolerance(model: ModelHandle) -> float:
    computed_in = model.metadata.get("model", {}).get("dtype")
    in_16_bits = computed_in in ("float16", "bfloat16") or getattr(model.input, "dtype", None) == "float16"
    return TOLERANCE_16_BITS if in_16_bits else TOLERANCE
