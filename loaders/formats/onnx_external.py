"""Which other files an ONNX model reads its weights from.

onnxruntime opens whatever path the model names. The model is therefore walked in its wire format, tensor by
tensor, before the runtime sees it; that takes no further package, and large weights are skipped, not read.

*Source:* the Protocol Buffers encoding guide, and the field numbers in ONNX's `onnx.proto`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from loaders.errors import ModelLoadError
from loaders.paths import resolve_inside

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

# For each message: its fields that can hold a tensor, somewhere below, and what message they are.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_MAX_DEPTH = 100


class NotOnnxError(ModelLoadError):
    """The file is not in ONNX's wire format."""


def external_files(path: Path) -> dict[str, Path]:
    """The files that the model reads weights from, by the names that it gives them, in their order.

    Raises `UnsafePathError` when one lies outside the model's directory, `ModelLoadError` when one is missing or when
    the model is not in ONNX's wire format.
    """
    if path.stat().st_size == 0:
        raise NotOnnxError(f"{path.name!r} is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            locations = set(_locations(data, 0, len(data), "model", 0))
        except (IndexError, ValueError) as error:
            raise NotOnnxError(f"{path.name!r} is not an ONNX model: {error}") from error
    what = f"external data of {path.name!r}"
    return {location: resolve_inside(path.parent, location, what=what) for location in sorted(locations)}


def _locations(data: mmap.mmap, start: int, end: int, message: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise ValueError("its graphs are nested too deeply")
    for number, begin, stop in _length_fields(data, start, end):
        inner = _FIELDS[message].get(number)
        if inner == "entry":
            entry = {key: data[first:last] for key, first, last in _length_fields(data, begin, stop)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode("utf-8")
        elif inner is not None:
            yield from _locations(data, begin, stop, inner, depth + 1)


def _length_fields(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of every length-delimited field between two offsets."""
    while position < end:
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, position = _varint(data, position)
        elif wire_type == _LENGTH:
            size, position = _varint(data, position)
            if position + size > end:
                raise ValueError("a field is longer than the message around it")
            yield tag >> 3, position, position + size
            position += size
        elif wire_type in {_FIXED64, _FIXED32}:
            position += 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"{wire_type} is not a wire type")


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")
