"""The elements of a tensor as the `data` of JSON: one flat list, or lists nested like the shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import Fault, InvalidInput, TooLarge
from service.http.v2.datatypes import Datatype, numpy_dtype
from service.inputs.json_text import refuse_if_costly
from service.inputs.numbers import faults_in, to_array
from service.inputs.rows import name_of_type, raise_if_any

# Strings that are parsed without a question: some 6 MB of Python objects.
_FREE_STRINGS = 100_000

# Keys and values that an input has beside its data, and the request beside its inputs; generously.
_OTHER_STRINGS = 64


def refuse_if_many_strings(head: bytes, inputs: int, max_rows: int) -> None:
    """Raise TooLarge for JSON, not parsed yet, with more strings than BYTES elements may be asked for.

    inputs: how many the model takes. Each string takes many times as much memory as it has bytes here.
    """
    if head.count(b'"') // 2 <= _FREE_STRINGS:
        return
    if b"\\" in head:
        head = head.replace(rb"\\", b"").replace(rb"\"", b"")
    if head.count(b'"') // 2 > (inputs + 1) * (max_rows + _OTHER_STRINGS) + _FREE_STRINGS:
        refuse_if_costly(head, max_rows)  # it may know better what is wrong
        raise TooLarge("the number of strings in the body", max_rows, "MAX_INSTANCES")


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
    for position, msg in faults_in(values, dtype):
        yield Fault(_place(loc, position, shape), msg)


def _text_faults(values: list[Any], shape: tuple[int, ...], loc: str) -> Iterator[Fault]:
    for position, value in enumerate(values):
        if type(value) is not str:
            yield Fault(_place(loc, position, shape), f"must be a string, not {name_of_type(value)}")


def _place(loc: str, position: int, shape: tuple[int, ...]) -> str:
    """Where the element number `position` stands, with one index for each dimension."""
    return loc + "".join(f"[{int(index)}]" for index in np.unravel_index(position, shape))
