"""ONNX models with an input of their own for each column of a table, as skl2onnx writes pipelines over data frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from loaders.formats.columns import ColumnType
from loaders.formats.onnx_outputs import AskedOutputs
from loaders.signature import TabularInput

_TYPES: dict[str, tuple[ColumnType, np.dtype[Any]]] = {
    "tensor(float)": (ColumnType.FLOAT32, np.dtype(np.float32)),
    "tensor(double)": (ColumnType.NUMBER, np.dtype(np.float64)),
    "tensor(int64)": (ColumnType.INTEGER, np.dtype(np.int64)),
    "tensor(bool)": (ColumnType.BOOLEAN, np.dtype(np.bool_)),
    "tensor(string)": (ColumnType.TEXT, np.dtype(object)),
}
_ALIKE = {ColumnType.FLOAT32: "float32", ColumnType.NUMBER: "float64"}


def are_columns(inputs: Sequence[Any]) -> bool:
    """Whether every input is one column: one value per row, of a type that a table has, for any number of rows."""
    return len(inputs) > 1 and all(
        value.type in _TYPES
        and len(value.shape) in {1, 2}
        and not isinstance(value.shape[0], int)
        and value.shape[1:] in ([], [1])
        for value in inputs
    )


def columns_input(inputs: Sequence[Any]) -> tuple[TabularInput, dict[str, Any]]:
    """What a row is, in the order of the inputs, and what else is known of its columns, for the metadata."""
    names = tuple(str(value.name) for value in inputs)
    kinds = tuple(_TYPES[value.type][0] for value in inputs)
    alike = _ALIKE.get(kinds[0], "object") if len(set(kinds)) == 1 else "object"
    dtype = cast('Literal["float32", "float64", "object"]', alike)
    return TabularInput(columns=names, width=len(names), dtype=dtype), {"column_types": kinds}


class OnnxColumns:
    """Runs a session on rows of a table."""

    def __init__(self, session: Any, outputs: AskedOutputs) -> None:
        self._session: Any = session
        self._outputs = outputs
        self._columns = [(value.name, _TYPES[value.type][1], len(value.shape)) for value in session.get_inputs()]

    def __call__(self, rows: list[Any]) -> Any:
        """One result per row; `rows` are tuples or arrays of values in the order of the inputs."""
        columns = zip(*rows, strict=True)
        feed = {
            name: _column(values, dtype, rank)
            for values, (name, dtype, rank) in zip(columns, self._columns, strict=True)
        }
        return self._outputs.rows(self._session.run(self._outputs.names, feed), len(rows))

    def close(self) -> None:
        """Free the session and its device memory."""
        self._session = None


def _column(values: Sequence[Any], dtype: np.dtype[Any], rank: int) -> NDArray[Any]:
    if dtype.kind != "f" and None in values:
        raise ValueError("a missing value in a column that is not of floating-point numbers")
    array = np.array(values, dtype=dtype)
    return array if rank == 1 else array.reshape(-1, 1)
