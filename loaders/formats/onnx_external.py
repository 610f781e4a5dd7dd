"""Which other files an ONNX model reads its weights from.

onnxruntime opens whatever path the model names. The model is therefore walked in its wire format, tensor by
tensor, before the runtime sees it; that takes no further package, and large weights are skipped, not read.

*Source:* the field numbers in ONNX's `onnx.proto`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from loaders.errors import ModelLoadError
from loaders.formats.wire import fields
from loaders.paths import resolve_inside

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
    for number, value in fields(data, start, end):
        inner = _FIELDS[message].get(number)
        if inner is None or not isinstance(value, slice):
            continue
        if inner == "entry":
            entry = {key: data[text] for key, text in fields(data, value.start, value.stop) if isinstance(text, slice)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode("utf-8")
        else:
            yield from _locations(data, value.start, value.stop, inner, depth + 1)
