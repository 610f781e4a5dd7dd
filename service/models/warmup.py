"""Running a model before the first caller does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from service.models.examples import TEXT, example_row

_log = logging.getLogger("jitney")

Predict = Callable[[ModelHandle, list[Any], Mapping[str, Any]], Any]


def warm_up(model: ModelHandle, max_batch_size: int, predict: Predict, buckets: Sequence[int] = ()) -> None:
    """Run a batch of one, a full batch, and one of each size in `buckets`. *Thread:* worker.

    buckets: the sizes that batches are filled up to, rising; those above the first that holds a full batch never occur.
    Raises ModelLoadError, from whatever the model raised.
    """
    row = example_row(model.input)
    if row is None:
        return
    reached = [size for size, below in zip(buckets, (0, *buckets), strict=False) if below < max_batch_size]
    for size in sorted({1, max_batch_size, *reached}):
        try:
            predict(model, [row] * size, {})
        except Exception as error:
            _log.error("the model failed on a warm-up batch", exc_info=error)
            raise ModelLoadError(
                f"the warm-up batch of {size} {'row' if size == 1 else 'rows'} ({_described(row)}) failed with "
                f"{type(error).__name__}: {error}; WARMUP=false starts without one"
            ) from error


def _described(row: Any) -> str:
    if isinstance(row, np.ndarray):
        return f"zeros of shape {list(row.shape)} and type {row.dtype.name}"
    return f'the text "{TEXT}"'
