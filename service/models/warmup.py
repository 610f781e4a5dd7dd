"""Synthetic rows, to run a model before the first caller does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, TabularInput, TensorInput, TextInput

_log = logging.getLogger("jitney")

_TEXT = "warm up"

Predict = Callable[[ModelHandle, list[Any], Mapping[str, Any]], Any]


def example_row(spec: InputSpec) -> Any | None:
    """A prepared row of zeros (or a short text) that `spec` allows; None when too little is known to make one."""
    if isinstance(spec, TabularInput):
        if spec.width is None or spec.dtype == "object":
            return None
        return np.zeros(spec.width, dtype=spec.dtype)
    if isinstance(spec, TextInput):
        return _TEXT if spec.encode is None else spec.encode(_TEXT)
    if isinstance(spec, ImageInput):
        height, width = spec.crop or (spec.height, spec.width)
        shape = (3, height, width) if spec.layout == "NCHW" else (height, width, 3)
        return np.zeros(shape, dtype=spec.dtype)
    if isinstance(spec, TensorInput) and spec.shape is not None:
        return np.zeros([extent or 1 for extent in spec.shape], dtype=spec.dtype)
    return None


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
    return f'the text "{_TEXT}"'
