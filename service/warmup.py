"""Synthetic rows, to run a model before the first caller does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, TabularInput, TensorInput, TextInput

Predict = Callable[[ModelHandle, list[Any], Mapping[str, Any]], Any]


def example_row(spec: InputSpec) -> Any | None:
    """A prepared row of zeros (or a short text) that `spec` allows; None when too little is known to make one."""
    if isinstance(spec, TabularInput):
        if spec.width is None or spec.dtype == "object":
            return None
        return np.zeros(spec.width, dtype=spec.dtype)
    if isinstance(spec, TextInput):
        return "warm up" if spec.encode is None else spec.encode("warm up")
    if isinstance(spec, ImageInput):
        height, width = spec.crop or (spec.height, spec.width)
        shape = (3, height, width) if spec.layout == "NCHW" else (height, width, 3)
        return np.zeros(shape, dtype=spec.dtype)
    if isinstance(spec, TensorInput) and spec.shape is not None:
        return np.zeros([extent or 1 for extent in spec.shape], dtype=spec.dtype)
    return None


def warm_up(model: ModelHandle, max_batch_size: int, predict: Predict) -> None:
    """Run a batch of one and a full batch; whatever the model raises comes through. *Thread:* worker."""
    row = example_row(model.input)
    if row is None:
        return
    for size in sorted({1, max_batch_size}):
        predict(model, [row] * size, {})
