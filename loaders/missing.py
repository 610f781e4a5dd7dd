"""Which columns of a model take no missing value, found out by asking it.

A bundle allows nulls for the whole table. That a column without an imputer fails on one is the model's own knowledge,
which no two frameworks tell alike; all of them fail, or answer with NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loaders.column_values import column_value
from loaders.handle import ModelHandle
from loaders.signature import TabularInput

# Each is one call of the model at its start.
_MOST_COLUMNS = 256


def with_columns_without_null(handle: ModelHandle) -> ModelHandle:
    """`handle` with the columns that take no null, where its bundle allows nulls at all; nothing else changes.

    A model that does not answer a made-up row without a null tells nothing, and is left as it is.

    *Thread:* the one that uses the model.
    """
    spec = handle.input
    if not isinstance(spec, TabularInput) or not spec.allow_null:
        return handle
    row = _made_up(handle, spec)
    nulls = [None] * len(row)
    if not row or len(row) > _MOST_COLUMNS or not _answers(handle, spec, row) or _answers(handle, spec, nulls):
        return handle
    without = tuple(
        number for number in range(len(row)) if not _answers(handle, spec, [*row[:number], None, *row[number + 1 :]])
    )
    return replace(handle, input=replace(spec, without_null=without))


def _made_up(handle: ModelHandle, spec: TabularInput) -> list[Any]:
    width = len(spec.columns) if spec.columns is not None else spec.width or 0
    none_known: Sequence[Any] = (None,) * width
    kinds, examples = (handle.metadata.get(key) or none_known for key in ("column_types", "column_examples"))
    return [column_value(kind, example) for kind, example in zip(kinds, examples, strict=True)]


def _answers(handle: ModelHandle, spec: TabularInput, values: list[Any]) -> bool:
    row = tuple(values) if spec.dtype == "object" else np.array(values, dtype=spec.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return all(map(_is_finite, handle.predict_batch([row])))
        except Exception:  # whatever the framework raises, it is no answer
            return False


def _is_finite(result: Any) -> bool:
    if isinstance(result, dict):
        return all(map(_is_finite, result.values()))
    array = np.asarray(result)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
