"""The elements of a tensor as bytes: little-endian, row-major, without padding."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput
from service.http.v2.datatypes import Datatype, element_bytes, numpy_dtype

# In front of each element of BYTES: its length.
_LENGTH = struct.Struct("<I")


def from_bytes(data: memoryview, datatype: Datatype, shape: tuple[int, ...], loc: str) -> npt.NDArray[Any]:
    """A writable array of `shape`, in native byte order, that does not share memory with `data`.

    Raises InvalidInput when the bytes are not the elements of such a tensor. `loc`: the tensor.
    """
    if datatype is Datatype.BYTES:
        return _split_elements(data, math.prod(shape), loc).reshape(shape)
    expected = math.prod(shape) * element_bytes(datatype)
    if len(data) != expected:
        raise InvalidInput.at(
            f"{loc}.parameters.binary_data_size", f"is {len(data)}; shape and datatype {datatype} make {expected} bytes"
        )
    if datatype is Datatype.BF16:
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if datatype is Datatype.BOOL:
        flags = np.frombuffer(data, np.uint8)
        if flags.size and flags.max() > 1:
            raise InvalidInput.at(f"{loc}.data", "holds a BOOL that is neither 0 nor 1")
        return flags.astype(np.bool_).reshape(shape)
    dtype = numpy_dtype(datatype)
    # A copy, because the data may start at any byte, and models may write into their rows.
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def _split_elements(data: memoryview, count: int, loc: str) -> npt.NDArray[Any]:
    # Each takes the bytes of its length at least: a shape that promises more asks for no memory.
    if count * _LENGTH.size > len(data):
        raise InvalidInput.at(f"{loc}.data", f"ends before the {count} elements that the shape declares")
    elements = np.empty(count, object)
    position = 0
    for number in range(count):
        start = position + _LENGTH.size
        if start > len(data):
            raise InvalidInput.at(f"{loc}.data", f"ends in the length of element {number}")
        position = start + _LENGTH.unpack_from(data, position)[0]
        if position > len(data):
            raise InvalidInput.at(f"{loc}.data", f"ends in element {number}")
        elements[number] = bytes(data[start:position])
    if position != len(data):
        raise InvalidInput.at(f"{loc}.data", f"goes on after the {count} elements that the shape declares")
    return elements


def to_bytes(array: npt.NDArray[Any]) -> bytes:
    """The elements of `array`; one of objects holds `bytes`."""
    if array.dtype == object:
        return b"".join(part for element in array.reshape(-1) for part in (_LENGTH.pack(len(element)), element))
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
