"""Classifiers as skl2onnx writes them: an output of labels beside one with the scores of all classes.

onnxruntime does not tell the names of the classes. They stand in the graph: in an attribute of the node that
classifies, or in a constant that labels are picked from. So the graph is read in its wire format.

*Source:* the field numbers in ONNX's `onnx.proto`, and the operators of `ai.onnx.ml`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loaders.errors import ModelLoadError
from loaders.formats.wire import fields, integers

Classes = list[int] | list[str]

_LABEL_TYPES = {"tensor(int64)": int, "tensor(string)": str}
_SCORE_TYPES = {"tensor(float)", "tensor(double)"}
_NAMES_OF_CLASSES = {b"classlabels_ints", b"classlabels_int64s", b"classlabels_strings"}

# A constant of more bytes than this holds no names of classes.
_MOST_BYTES = 1 << 20

# TensorProto.DataType of the types that classes have.
_INT32, _INT64, _STRING = 6, 7, 8


@dataclass(frozen=True, slots=True)
class ScoredClasses:
    """`output`: the name of the output with one score per class. `classes`: their names, in the order of the scores."""

    output: str
    classes: Classes

    def scores(self, result: Any) -> Any:
        """(rows, classes) scores from what the model gave: those already, or one dictionary by class for each row."""
        if isinstance(result, list):
            return [np.array([row[name] for name in self.classes], np.float32) for row in result]
        return result


def scored_classes(outputs: Iterable[Any], path: Path) -> ScoredClasses | None:
    """What a session's outputs say of a classifier; None for a model that is none of skl2onnx's.

    Raises `ModelLoadError` for one of its classifiers whose classes cannot be found.
    """
    outputs = list(outputs)
    if len(outputs) != 2:
        return None
    label, scores = outputs
    kind = _LABEL_TYPES.get(label.type)
    mapped = scores.type.startswith("seq(map(")
    if (
        kind is None
        or len(label.shape) != 1
        or not (mapped or (scores.type in _SCORE_TYPES and len(scores.shape) == 2))
    ):
        return None
    count = scores.shape[1] if not mapped and isinstance(scores.shape[1], int) else None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        graph = _read_graph(data)
    found = graph.classes_before((scores.name,) if mapped else (label.name,), kind, count)
    if found is None:
        raise ModelLoadError(
            f"{path.name!r} gives a label and scores, but the names of its classes cannot be found in the file: "
            "leave [output] out, or export it again with the option zipmap=True"
        )
    return ScoredClasses(scores.name, found)


@dataclass(slots=True)
class _Node:
    operator: bytes = b""
    inputs: list[bytes] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    classes: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Graph:
    """`made_by`: the node that makes a value. `constants`: the small ones that may be names of classes."""

    made_by: Mapping[bytes, _Node]
    constants: Mapping[bytes, list[Any]]

    def classes_before(self, values: Iterable[str], kind: type, count: int | None) -> Classes | None:
        """The names of classes nearest before `values`: of type `kind`, and `count` of them where that is known."""
        waiting = [value.encode() for value in values]
        seen = set(waiting)
        while waiting:
            node = self.made_by.get(waiting.pop(0))
            if node is None:
                continue
            picked_from = node.inputs[0] if node.operator == b"ArrayFeatureExtractor" and node.inputs else b""
            for names in (node.classes, self.constants.get(picked_from, [])):
                fits = count is None or len(names) == count
                if names and fits and all(type(name) is kind for name in names):
                    return names
            fresh = [value for value in node.inputs if value not in seen]
            seen.update(fresh)
            waiting += fresh
        return None


def _read_graph(data: mmap.mmap) -> _Graph:
    made_by: dict[bytes, _Node] = {}
    constants: dict[bytes, list[Any]] = {}
    for graph in _parts(data, slice(0, len(data)), 7):
        for part in _parts(data, graph, 1):
            node = _read_node(data, part)
            made_by.update(dict.fromkeys(node.outputs, node))
        for part in _parts(data, graph, 5):
            if part.stop - part.start <= _MOST_BYTES:
                name, values = _read_tensor(data, part)
                constants[name] = values
    return _Graph(made_by, constants)


def _read_node(data: mmap.mmap, where: slice) -> _Node:
    node = _Node()
    for number, value in fields(data, where.start, where.stop):
        if not isinstance(value, slice):
            continue
        if number == 1:
            node.inputs.append(data[value])
        elif number == 2:
            node.outputs.append(data[value])
        elif number == 4:
            node.operator = data[value]
        elif number == 5:
            node.classes += _read_classes(data, value)
    return node


def _read_classes(data: mmap.mmap, where: slice) -> list[Any]:
    """The values of an attribute that names classes; of any other nothing."""
    if not any(data[name] in _NAMES_OF_CLASSES for name in _parts(data, where, 1)):
        return []
    numbers = [each for number, value in fields(data, where.start, where.stop) if number == 8
               for each in integers(data, value)]  # fmt: skip
    return numbers or [data[text].decode() for text in _parts(data, where, 9)]


def _read_tensor(data: mmap.mmap, where: slice) -> tuple[bytes, list[Any]]:
    """Name and values of a constant of integers or texts; no values for one of another type."""
    name, dtype, raw = b"", 0, b""
    numbers: list[Any] = []
    texts: list[Any] = []
    for number, value in fields(data, where.start, where.stop):
        if number == 2 and isinstance(value, int):
            dtype = value
        elif number in {5, 7}:
            numbers += integers(data, value)
        elif number == 6 and isinstance(value, slice):
            texts.append(data[value].decode())
        elif number == 8 and isinstance(value, slice):
            name = data[value]
        elif number == 9 and isinstance(value, slice) and dtype in {_INT32, _INT64}:
            raw = data[value]
    if dtype == _STRING:
        return name, texts
    if dtype not in {_INT32, _INT64}:
        return name, []
    return name, numbers or np.frombuffer(raw, "<i4" if dtype == _INT32 else "<i8").tolist()


def _parts(data: mmap.mmap, where: slice, wanted: int) -> Iterator[slice]:
    """The fields number `wanted` of a message that have a length."""
    for number, value in fields(data, where.start, where.stop):
        if number == wanted and isinstance(value, slice):
            yield value
