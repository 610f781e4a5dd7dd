"""Tensors: nested lists of numbers, or arrays, of the shape and dtype that the model declares."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from loaders.signature import TensorInput
from service.errors import Fault, InvalidInput
from service.inputs.nesting import MAX_DEPTH_OF_INSTANCE
from service.inputs.numbers import faults_in, to_array, to_values
from service.inputs.rows import PreparedRow, name_of_type, raise_if_any

# What lies deeper is refused wherever it is met; NumPy itself stops at 64 dimensions.
_MAX_RANK = MAX_DEPTH_OF_INSTANCE


def prepare(spec: TensorInput, instances: list[Any], *, may_be_rounded: bool = False) -> list[PreparedRow]:
    """One row per instance; its payload is a C-contiguous array of `spec.dtype` in the declared shape.

    instances: nested lists, or arrays, which are handed on as they are when they have the dtype already.
    Raises InvalidInput with the place that is wrong and what is expected there.
    """
    dtype = np.dtype(spec.dtype)
    rows = []
    for i, instance in enumerate(instances):
        array = _to_tensor(instance, spec.shape, dtype, f"instances[{i}]", may_be_rounded)
        rows.append(PreparedRow(array, shape_key=(*array.shape, dtype.name)))
    return rows


def _to_tensor(
    instance: Any, declared: tuple[int | None, ...] | None, dtype: np.dtype[Any], loc: str, may_be_rounded: bool
) -> npt.NDArray[Any]:
    first = instance.shape if isinstance(instance, np.ndarray) else _shape_along_first(instance)
    expected = first if declared is None else declared
    if len(first) != len(expected):
        raise _rank_fault(first, expected, loc)
    if isinstance(instance, np.ndarray):
        _refuse_extents(first, expected, loc)
        values: list[Any] | npt.NDArray[Any] = instance.reshape(-1)
    else:
        values = _flattened(instance, first, expected, loc)
    array = to_array(values, dtype, may_be_rounded=may_be_rounded)
    if array is None:
        raise_if_any(_value_faults(values if isinstance(values, list) else to_values(values), first, dtype, loc))
        raise AssertionError("a tensor was refused without a fault")
    return array.reshape(first)


def _flattened(instance: Any, first: tuple[int, ...], expected: tuple[int | None, ...], loc: str) -> list[Any]:
    # Level by level instead of number by number: every test is a pass in C.
    level = [instance]
    for axis, extent in enumerate(expected):
        wanted = first[axis] if extent is None else extent
        if set(map(type, level)) != {list} or set(map(len, level)) != {wanted} or not wanted:
            raise InvalidInput(_extent_fault(level, first[:axis], wanted, expected, loc))
        level = list(chain.from_iterable(level))
    return level


def _refuse_extents(shape: tuple[int, ...], expected: tuple[int | None, ...], loc: str) -> None:
    """Raise InvalidInput for the first extent of an array that is empty, or not the expected one."""
    for axis, (extent, wanted) in enumerate(zip(shape, expected, strict=True)):
        if not extent or wanted not in (None, extent):
            found = f"has {extent} elements" if extent else "must not be empty"
            raise InvalidInput.at(loc + "[0]" * axis, f"{found}; expected shape {_shown(expected)}")


def _shape_along_first(instance: Any) -> tuple[int, ...]:
    """The extents met on the way to the very first number; the whole must follow them."""
    shape: list[int] = []
    while type(instance) is list and len(shape) < _MAX_RANK:
        shape.append(len(instance))
        if not instance:
            break
        instance = instance[0]
    return tuple(shape)


def _rank_fault(first: tuple[int, ...], expected: tuple[int | None, ...], loc: str) -> InvalidInput:
    if 0 in first:
        return InvalidInput.at(loc + "[0]" * (len(first) - 1), f"must not be empty; expected shape {_shown(expected)}")
    return InvalidInput.at(loc, f"has {len(first)} dimensions; expected shape {_shown(expected)}")


def _extent_fault(
    level: list[Any], above: tuple[int, ...], wanted: int, expected: tuple[int | None, ...], loc: str
) -> Fault:
    """The first element of one level that is not a list of `wanted` elements."""
    position = next(k for k, part in enumerate(level) if type(part) is not list or len(part) != wanted or not part)
    part = level[position]
    if part == []:
        found = "must not be empty"
    else:
        found = f"has {len(part)} elements" if type(part) is list else f"is {name_of_type(part)}"
    return Fault(_place(loc, position, above), f"{found}; expected shape {_shown(expected)}")


def _value_faults(values: list[Any], shape: tuple[int, ...], dtype: np.dtype[Any], loc: str) -> Iterator[Fault]:
    for position, msg in faults_in(values, dtype):
        yield Fault(_place(loc, position, shape), msg)


def _place(loc: str, position: int, shape: tuple[int, ...]) -> str:
    """Where the element number `position` (in C order) of `shape` stands."""
    return loc + "".join(f"[{int(index)}]" for index in np.unravel_index(position, shape))


def _shown(shape: tuple[int | None, ...]) -> str:
    """E.g. `[3, any, 224]`."""
    return "[" + ", ".join("any" if extent is None else str(extent) for extent in shape) + "]"
