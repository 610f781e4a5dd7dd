"""The elements of a tensor as the `data` of JSON: one flat list, or lists nested like the shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import Fault, InvalidInput
from service.http.v2.datatypes import Datatype, numpy_dtype
from service.inputs.numbers import fault_in, to_array
from service.inputs.rows import name_of_type, raise_if_any


def from_json(
    data: Any, datatype: Datatype, shape: tuple[int, ...], loc: str, *, may_be_rounded: bool
) -> npt.NDArray[Any]:
    """An array of `shape`; raises InvalidInput for what is not such a tensor. `loc`: the tensor.

    The elements obey the rules of every JSON number: exact, finite, within the datatype. may_be_rounded: raise
    MayBeRounded where a large float may stand for an integer.
    """
    if datatype is Datatype.BF16:
        raise InvalidInput.at(f"{loc}.datatype", "BF16 is taken as binary data only")
    values = _flat(data, shape, f"{loc}.data")
    if datatype is Datatype.BYTES:
        raise_if_any(_text_faults(values, shape, f"{loc}.data"))
        elements = np.empty(len(values), object)
        elements[:] = [text.encode() for text in values]
        return elements.reshape(shape)
    dtype = numpy_dtype(datatype)
    array = to_array(values, dtype, may_be_rounded=may_be_rounded)
    if array is None:
        raise_if_any(_number_faults(values, dtype, shape, f"{loc}.data"))
        raise AssertionError("a tensor was refused without a fault")
    return array.reshape(shape)


def to_json(array: npt.NDArray[Any]) -> Any:
    """`array` flat, as orjson writes it with OPT_SERIALIZE_NUMPY; BYTES must be UTF-8."""
    if array.dtype == object:
        return [element.decode() for element in array.reshape(-1)]
    return np.ascontiguousarray(array).reshape(-1)


def _flat(data: Any, shape: tuple[int, ...], loc: str) -> list[Any]:
    if type(data) is not list:
        raise InvalidInput.at(loc, f"must be a list, not {name_of_type(data)}")
    count = math.prod(shape)
    if list not in set(map(type, data)):
        if len(data) != count:
            raise InvalidInput.at(loc, f"has {len(data)} elements; the shape makes {count}")
        return data
    level: list[Any] = [data]
    for extent in shape:
        if set(map(type, level)) - {list} or set(map(len, level)) - {extent}:
            raise InvalidInput.at(loc, "is nested in another way than the shape says")
        level = list(chain.from_iterable(level))
    return level


def _number_faults(values: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...], loc: str) -> Iterator[Fault]:
    for position, value in enumerate(values):
        msg = fault_in(value, dtype)
        if msg is not None:
            yield Fault(_place(loc, position, shape), msg)


def _text_faults(values: list[Any], shape: tuple[int, ...], loc: str) -> Iterator[Fault]:
    for position, value in enumerate(values):
        if type(value) is not str:
            yield Fault(_place(loc, position, shape), f"must be a string, not {name_of_type(value)}")


def _place(loc: str, position: int, shape: tuple[int, ...]) -> str:
    """Where the element number `position` stands, with one index for each dimension."""
    return loc + "".join(f"[{int(index)}]" for index in np.unravel_index(position, shape))
