"""The protocol's names of datatypes, and the NumPy types that stand for them.

*Source:* the Open Inference Protocol's table of tensor data types, and Triton's BF16.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np

from service.errors import InvalidInput


class Datatype(StrEnum):
    """What the elements of a tensor are."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"


# What an element becomes here. NumPy has no bfloat16: each is a float32 whose lower half is zero.
# BYTES are Python's `bytes` in an array of objects.
_NUMPY: dict[Datatype, np.dtype[Any]] = {
    Datatype.BOOL: np.dtype(np.bool_),
    Datatype.UINT8: np.dtype(np.uint8),
    Datatype.UINT16: np.dtype(np.uint16),
    Datatype.UINT32: np.dtype(np.uint32),
    Datatype.UINT64: np.dtype(np.uint64),
    Datatype.INT8: np.dtype(np.int8),
    Datatype.INT16: np.dtype(np.int16),
    Datatype.INT32: np.dtype(np.int32),
    Datatype.INT64: np.dtype(np.int64),
    Datatype.FP16: np.dtype(np.float16),
    Datatype.BF16: np.dtype(np.float32),
    Datatype.FP32: np.dtype(np.float32),
    Datatype.FP64: np.dtype(np.float64),
    Datatype.BYTES: np.dtype(object),
}

_OF_NUMPY = {dtype: datatype for datatype, dtype in _NUMPY.items() if datatype is not Datatype.BF16}

# Bytes that an element takes on the wire, where they are not those of its NumPy type.
_WIRE_BYTES = {Datatype.BF16: 2}


def read_datatype(name: Any, loc: str) -> Datatype:
    """The datatype called `name`; raises InvalidInput."""
    # Looked up by name: an enumeration that is asked for what it has not would write that out, however much it is.
    found = Datatype.__members__.get(name) if type(name) is str else None
    if found is None:
        raise InvalidInput.at(loc, f"must be one of {', '.join(Datatype)}")
    return found


def numpy_dtype(datatype: Datatype) -> np.dtype[Any]:
    """The dtype of an array that holds such elements."""
    return _NUMPY[datatype]


def datatype_of(dtype: np.dtype[Any]) -> Datatype:
    """The datatype of an array's elements; raises KeyError for a dtype that the protocol does not have."""
    return _OF_NUMPY[dtype]


def element_bytes(datatype: Datatype) -> int:
    """Bytes of one element on the wire; not for BYTES, whose elements differ in length."""
    return _WIRE_BYTES.get(datatype, _NUMPY[datatype].itemsize)
