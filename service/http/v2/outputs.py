"""From the predictions of a request, one for each row, to named tensors; row i of each belongs to prediction i."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput
from service.inputs.names import shown

# The name of what has none: predictions that are numbers, strings or arrays.
OUTPUT = "output"

_INT64 = np.iinfo(np.int64)


def to_tensors(predictions: Sequence[Any]) -> dict[str, npt.NDArray[Any]]:
    """Arrays by output name, each (rows, ...); BYTES are UTF-8 in an array of objects.

    A prediction that is an object gives one output for each key, `outer.inner` where objects are nested; anything
    else is the output `output`. A list of objects, such as the best classes, gives each key one more dimension. Arrays
    keep their dtype; numbers become INT64, FP64 where one of them is a float, or UINT64 where one is too large.
    predictions: at least one, as `service.outputs.present` gives them.
    Raises InvalidInput for what tensors cannot hold: rows that differ in shape or keys, nulls, mixed types. It is not
    the model's failure: `/predict` answers the same rows, and what is ragged may be asked for row by row.
    """
    found: dict[str, npt.NDArray[Any]] = {}
    _add(found, "", list(predictions), (len(predictions),))
    return found


def _add(found: dict[str, npt.NDArray[Any]], name: str, values: list[Any], shape: tuple[int, ...]) -> None:
    """Add what `values`, in the order of an array of `shape`, are as tensors."""
    kinds = set(map(type, values))
    if kinds == {dict}:
        _add_objects(found, name, values, shape)
    elif kinds == {list}:
        extents = set(map(len, values))
        if len(extents) > 1:
            raise _no_tensor(name, "the rows differ in length")
        if extents == {0}:
            raise _no_tensor(name, "an empty list has no datatype")
        _add(found, name, [element for value in values for element in value], (*shape, *extents))
    else:
        if (name or OUTPUT) in found:
            raise _no_tensor(name, "two outputs have this name")
        array = _stacked(name, values) if kinds == {np.ndarray} else _of_scalars(name, values, kinds)
        found[name or OUTPUT] = array.reshape(*shape, *array.shape[1:])


def _add_objects(
    found: dict[str, npt.NDArray[Any]], name: str, values: list[dict[str, Any]], shape: tuple[int, ...]
) -> None:
    keys = values[0].keys()
    if any(value.keys() != keys for value in values):
        raise _no_tensor(name, "the rows have different keys")
    for key in keys:
        _add(found, f"{name}.{key}" if name else key, [value[key] for value in values], shape)


def _stacked(name: str, arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if len({array.shape for array in arrays}) > 1:
        raise _no_tensor(name, "the rows differ in shape")
    if len({array.dtype for array in arrays}) > 1:
        raise _no_tensor(name, "the rows differ in datatype")
    return np.stack(arrays)


def _of_scalars(name: str, values: list[Any], kinds: set[type]) -> npt.NDArray[Any]:
    if kinds == {bool}:
        return np.array(values, np.bool_)
    if kinds == {str}:
        elements = np.empty(len(values), object)
        elements[:] = [text.encode() for text in values]
        return elements
    if kinds == {int}:
        return _of_integers(name, values)
    if kinds <= {int, float}:
        return np.array(values, np.float64)
    raise _no_tensor(name, "some values are missing" if type(None) in kinds else "the rows are of different kinds")


def _of_integers(name: str, values: list[int]) -> npt.NDArray[Any]:
    if _INT64.min <= min(values) and max(values) <= _INT64.max:
        return np.array(values, np.int64)
    if min(values) < 0:
        raise _no_tensor(name, "no datatype holds all of the integers")
    return np.array(values, np.uint64)


def _no_tensor(name: str, why: str) -> InvalidInput:
    which = f"the output {shown(name)}" if name else "the prediction"
    return InvalidInput.at("outputs", f"{which} is no tensor: {why}; /predict gives these predictions as JSON")
