"""The tensors that a model declares: what it takes, by its input, and what it gives, as far as that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loaders.signature import InputSpec, OutputSpec, TabularInput, TensorInput
from service.errors import InvalidInput
from service.http.v2.datatypes import Datatype, datatype_of
from service.http.v2.outputs import to_tensors

# The only input of every model that does not name its columns. A table with names is also taken whole under it.
INPUT = "input"

# The extent of a dimension that may vary; the first one, of the rows, always does.
ANY = -1

_OF_COLUMN = {
    "number": Datatype.FP64,
    "float32": Datatype.FP32,
    "integer": Datatype.INT64,
    "numeric": Datatype.FP64,
    "boolean": Datatype.BOOL,
    "text": Datatype.BYTES,
}


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """An input or output. `shape`: with the dimension of the rows, `ANY` where it may vary."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]


def accepted_names(spec: InputSpec) -> tuple[str, ...]:
    """The name of every input that a request may hold."""
    columns = spec.columns if isinstance(spec, TabularInput) and spec.columns is not None else ()
    return columns if INPUT in columns else (*columns, INPUT)


def declared_inputs(spec: InputSpec, column_types: Sequence[str | None] = ()) -> tuple[DeclaredTensor, ...]:
    """What to send: one tensor, or one for each named column.

    column_types: see `service.inputs.prepare`. A column of which nothing is known, in a table that holds more than
    numbers, is declared as text; numbers and booleans are taken there as well.
    """
    if isinstance(spec, TensorInput):
        shape = (ANY,) if spec.shape is None else tuple(ANY if extent is None else extent for extent in spec.shape)
        return (DeclaredTensor(INPUT, datatype_of(np.dtype(spec.dtype)), (ANY, *shape)),)
    if not isinstance(spec, TabularInput):
        return (DeclaredTensor(INPUT, Datatype.BYTES, (ANY, 1)),)
    number = Datatype.BYTES if spec.dtype == "object" else datatype_of(np.dtype(spec.dtype))
    if spec.columns is None:
        return (DeclaredTensor(INPUT, number, (ANY, spec.width or ANY)),)
    types = column_types or (None,) * len(spec.columns)
    return tuple(
        DeclaredTensor(name, number if spec.dtype != "object" else _OF_COLUMN.get(kind or "text", number), (ANY, 1))
        for name, kind in zip(spec.columns, types, strict=True)
    )


def declared_outputs(spec: OutputSpec, sample: Any | None = None) -> tuple[DeclaredTensor, ...]:
    """What comes back, told by `sample`, the prediction of one row; without it only classes with scores are known.

    Empty when nothing is known, and for a model whose predictions are no tensors.
    """
    if sample is not None:
        try:
            tensors = to_tensors([sample])
        except InvalidInput:
            return ()
        return tuple(
            DeclaredTensor(name, datatype_of(array.dtype), (ANY, *array.shape[1:])) for name, array in tensors.items()
        )
    if spec.task != "classification":
        return ()
    label = Datatype.INT64 if spec.labels is None else Datatype.BYTES
    count = len(spec.labels) if spec.labels is not None else None
    best = () if spec.top_k is None else (ANY if count is None else min(spec.top_k, count),)
    return (
        DeclaredTensor("label", label, (ANY, *best)),
        DeclaredTensor("score", Datatype.FP64, (ANY, *best)),
    )
