"""Rows and results as JSON and raw bytes, and back again as what they were: types, shapes and bits.

Most groups are of one kind (arrays of one shape, numbers of one type, texts), and such a group is one piece of bytes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loaders.signature import EncodedText
from service.sharing.frames import ALIGNMENT, Buffer, FrameError

# Numbers, booleans, times and texts of fixed length. Others, such as records, go value by value.
_KINDS = frozenset("biufcmMSU")

# Of those the ones whose single values are numbers of a fixed size.
_NUMBERS = frozenset("biufcmM")

# JSON has these itself.
_PLAIN = frozenset({type(None), bool, int, float, str})

# Deeper than any result that can be presented.
_MAX_DEPTH = 64

Convert = Callable[[Any], Any]


class Unsendable(TypeError):
    """A value of a type that has no form here."""


def _refuse(value: Any) -> Any:
    raise Unsendable(f"a value of type {type(value).__name__} cannot be sent to another process")


def pack(values: Sequence[Any], convert: Convert = _refuse) -> tuple[Any, list[Buffer]]:
    """A description of `values` in JSON types, and the parts of the body that it speaks of.

    convert: makes something that can be sent of what cannot. Raises Unsendable, or what `convert` raises.
    """
    together = _together(values)
    if together is not None:
        return together
    parts: list[Buffer] = []
    return ["each", [_described(value, parts, convert, 0) for value in values]], parts


def unpack(described: Any, body: memoryview) -> list[Any]:
    """The values that `pack` was given. Arrays share `body`. Raises FrameError for what `pack` has not made."""
    try:
        return _unpacked(described, _Body(body))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise FrameError("values are not described as they should be") from error


class _Body:
    """The parts of a body, in order."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def array(self, dtype_name: str, shape: Sequence[int]) -> npt.NDArray[Any]:
        dtype = np.dtype(dtype_name)
        if not _is_sendable(dtype) or any(type(extent) is not int or extent < 0 for extent in shape):
            raise ValueError("no array")
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        part = self.part(size)
        if not size:
            return np.empty(shape, dtype)
        return np.frombuffer(part, dtype).reshape(shape)

    def part(self, size: int) -> memoryview:
        if type(size) is not int or size < 0 or self._at + size > len(self._body):
            raise ValueError("the body is too short")
        part = self._body[self._at : self._at + size]
        self._at += size + -size % ALIGNMENT
        return part


def _unpacked(described: Any, body: _Body) -> list[Any]:
    kind, *rest = described
    if kind == "rows":
        dtype, *shape = rest
        array = body.array(dtype, shape)
        return list(array) if len(shape) > 1 else [array[at : at + 1].reshape(()) for at in range(len(array))]
    if kind == "numbers":
        dtype, count = rest
        return list(body.array(dtype, [count]))
    if kind == "texts":
        lengths, truncated = rest
        return _texts(body.array("<i8", [sum(lengths)]).tolist(), lengths, set(truncated))
    if kind == "plain":
        return list(rest[0])
    if kind == "each":
        return [_value(one, body) for one in rest[0]]
    raise ValueError("no kind of values")


def _texts(ids: list[int], lengths: Sequence[int], truncated: set[int]) -> list[EncodedText]:
    texts, at = [], 0
    for number, length in enumerate(lengths):
        texts.append(EncodedText(tuple(ids[at : at + length]), truncated=number in truncated))
        at += length
    return texts


def _is_sendable(dtype: np.dtype[Any]) -> bool:
    """Whether its name says all about it: not so for records, objects, and types of other packages."""
    return dtype.kind in _KINDS and np.dtype(dtype.str) == dtype


def _contiguous(array: npt.NDArray[Any]) -> memoryview:
    """Its bytes. A view of them as plain bytes: not every dtype is known to the buffer protocol."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def _together(values: Sequence[Any]) -> tuple[Any, list[Buffer]] | None:
    """Values of one kind as one; None where they are not."""
    kinds = set(map(type, values))
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind is np.ndarray:
        return _rows(values)
    if issubclass(kind, np.generic):
        return _numbers(values)
    if kind is EncodedText:
        ids = np.fromiter((number for text in values for number in text.ids), dtype=np.int64)
        truncated = [at for at, text in enumerate(values) if text.truncated]
        return ["texts", [len(text.ids) for text in values], truncated], [_contiguous(ids)]
    return (["plain", list(values)], []) if kind in _PLAIN else None


def _rows(arrays: Sequence[npt.NDArray[Any]]) -> tuple[Any, list[Buffer]] | None:
    first = arrays[0]
    if not _is_sendable(first.dtype) or any(one.shape != first.shape or one.dtype != first.dtype for one in arrays):
        return None
    # The dtype is named, because NumPy would change the order of its bytes.
    joined = first if len(arrays) == 1 else np.stack(arrays, dtype=first.dtype)
    return ["rows", first.dtype.str, len(arrays), *first.shape], [_contiguous(joined)]


def _numbers(numbers: Sequence[np.generic]) -> tuple[Any, list[Buffer]] | None:
    dtype = numbers[0].dtype
    if dtype.kind not in _NUMBERS or not _is_sendable(dtype) or any(one.dtype != dtype for one in numbers):
        return None
    return ["numbers", dtype.str, len(numbers)], [_contiguous(np.array(numbers, dtype=dtype))]


def _described(value: Any, parts: list[Buffer], convert: Convert, depth: int) -> Any:
    """One value as JSON: itself where JSON has it, else a list that begins with its kind."""
    if depth > _MAX_DEPTH:
        raise Unsendable(f"values that are nested more than {_MAX_DEPTH} deep cannot be sent to another process")
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        return [kind.__name__, [_described(one, parts, convert, depth + 1) for one in value]]
    if isinstance(value, np.ndarray) and kind is np.ndarray and _is_sendable(value.dtype):
        parts.append(_contiguous(value))
        return ["array", value.dtype.str, *value.shape]
    if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS and _is_sendable(value.dtype):
        parts.append(np.array([value]).tobytes())
        return ["number", value.dtype.str]
    if isinstance(value, np.ndarray) and kind is np.ndarray and value.dtype.hasobject:
        return ["objects", list(value.shape), [_described(one, parts, convert, depth + 1) for one in value.flat]]
    if isinstance(value, Mapping):
        pairs = [[_described(one, parts, convert, depth + 1) for one in pair] for pair in value.items()]
        return ["mapping", pairs]
    if kind is bytes:
        parts.append(value)
        return ["bytes", len(value)]
    if kind is EncodedText:
        parts.append(np.array(value.ids, dtype=np.int64).tobytes())
        return ["text", len(value.ids), value.truncated]
    if kind is dt.date or (kind is dt.datetime and value.tzinfo is None):
        return [kind.__name__, value.isoformat()]
    if isinstance(value, (str, int, float)):  # of a subclass, such as an enumeration's
        return next(base(value) for base in (str, int, float) if isinstance(value, base))
    return _described(convert(value), parts, _refuse, depth + 1)


def _value(described: Any, body: _Body) -> Any:
    if not isinstance(described, list):
        return described
    kind, *rest = described
    return _MAKERS[kind](rest, body)


def _objects(rest: list[Any], body: _Body) -> npt.NDArray[Any]:
    shape, values = rest
    array = np.empty(len(values), dtype=object)
    for at, one in enumerate(values):
        array[at] = _value(one, body)
    return array.reshape(shape)


def _array(rest: list[Any], body: _Body) -> npt.NDArray[Any]:
    return body.array(rest[0], rest[1:])


def _number(rest: list[Any], body: _Body) -> Any:
    return body.array(rest[0], [1])[0]


def _list(rest: list[Any], body: _Body) -> list[Any]:
    return [_value(one, body) for one in rest[0]]


def _mapping(rest: list[Any], body: _Body) -> dict[Any, Any]:
    return {_value(key, body): _value(value, body) for key, value in rest[0]}


def _text(rest: list[Any], body: _Body) -> EncodedText:
    length, truncated = rest
    return EncodedText(tuple(body.array("<i8", [length]).tolist()), bool(truncated))


_MAKERS: dict[str, Callable[[list[Any], _Body], Any]] = {
    "array": _array,
    "number": _number,
    "objects": _objects,
    "list": _list,
    "tuple": lambda rest, body: tuple(_list(rest, body)),
    "mapping": _mapping,
    "bytes": lambda rest, body: bytes(body.part(rest[0])),
    "text": _text,
    "date": lambda rest, _: dt.date.fromisoformat(rest[0]),
    "datetime": lambda rest, _: dt.datetime.fromisoformat(rest[0]),
}
