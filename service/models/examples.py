"""Rows made up for a model that has none of its own yet: to warm it up, and to check it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loaders.signature import EncodedText, ImageInput, InputSpec, TabularInput, TensorInput, TextInput

TEXT = "warm up"

# Words of the longest text; the shortest has those of TEXT alone.
_MOST_WORDS = 64


def example_row(spec: InputSpec) -> Any | None:
    """A prepared row of zeros (or a short text) that `spec` allows; None when too little is known to make one."""
    if isinstance(spec, TextInput):
        return _text(spec, TEXT)
    known = _shape_and_dtype(spec)
    return None if known is None else np.zeros(known[0], dtype=known[1])


def varied_rows(spec: InputSpec, count: int) -> list[Any] | None:
    """`count` prepared rows that differ, the same at every call; None when too little is known to make them.

    Numbers lie from 0 to 1, pixels are noise, integers are 0 or 1 (which any vocabulary has), texts grow longer.
    """
    if isinstance(spec, TextInput):
        words = np.linspace(0, _MOST_WORDS, count, dtype=int)
        return [_text(spec, TEXT + " and on" * (number // 2)) for number in words]
    known = _shape_and_dtype(spec)
    if known is None:
        return None
    shape, dtype = known
    rng = np.random.default_rng(0)
    return [_varied(spec, rng, shape, dtype) for _ in range(count)]


def text_rows(spec: TextInput, max_tokens: int) -> list[EncodedText]:
    """Tokenised texts of 8, 16, 32 … tokens, or about as many, up to `max_tokens`; `spec` must have an `encode`."""
    assert spec.encode is not None
    rows: dict[int, EncodedText] = {}
    tokens = 8
    while tokens <= max_tokens:
        # " and on" is two tokens to any vocabulary that knows both words, and what it is to others is counted.
        row = spec.encode(TEXT + " and on" * (tokens // 2 - 2))
        rows[len(row.ids)] = row
        tokens *= 2
    return list(rows.values())


def _varied(spec: InputSpec, rng: np.random.Generator, shape: list[int], dtype: str) -> npt.NDArray[Any]:
    if isinstance(spec, ImageInput):
        pixels = rng.integers(0, 256, shape)
        if dtype == "uint8":
            return pixels.astype(dtype)
        channels = (3, 1, 1) if spec.layout == "NCHW" else (1, 1, 3)
        mean, std = np.reshape(spec.mean, channels), np.reshape(spec.std, channels)
        return np.asarray((pixels * spec.scale - mean) / std, dtype=dtype)
    if np.dtype(dtype).kind == "f":
        return rng.random(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def _shape_and_dtype(spec: InputSpec) -> tuple[list[int], str] | None:
    """Of one prepared row; a dimension that may vary is 1."""
    if isinstance(spec, TabularInput):
        return None if spec.width is None or spec.dtype == "object" else ([spec.width], spec.dtype)
    if isinstance(spec, ImageInput):
        height, width = spec.crop or (spec.height, spec.width)
        return [3, height, width] if spec.layout == "NCHW" else [height, width, 3], spec.dtype
    if isinstance(spec, TensorInput) and spec.shape is not None:
        return [extent or 1 for extent in spec.shape], spec.dtype
    return None


def _text(spec: TextInput, text: str) -> Any:
    return text if spec.encode is None else spec.encode(text)
