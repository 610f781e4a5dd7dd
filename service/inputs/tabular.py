"""Rows of a table: lists or arrays of numbers in the model's order, or objects of named columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from loaders.signature import TabularInput
from service.errors import Fault
from service.inputs.names import listed, shown
from service.inputs.numbers import fault_in, faults_in, raise_if_rounded, to_array, to_values
from service.inputs.rows import PreparedRow, name_of_type, raise_if_any

_FLOAT64 = np.dtype(np.float64)

# What a number of a column must fit, where that is not float64.
_DTYPE: dict[str, np.dtype[Any]] = {"float32": np.dtype(np.float32), "integer": np.dtype(np.int64)}

# Names that need no quotes behind a dot.
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")

# By the type of a column: the types of its values, and what they are called.
_NUMBERS = frozenset({int, float})
_ALLOWED: dict[str | None, tuple[frozenset[type], str]] = {
    "number": (_NUMBERS, "a number"),
    "float32": (_NUMBERS, "a number"),
    "integer": (_NUMBERS, "a whole number"),
    "numeric": (_NUMBERS | {bool}, "a number or a boolean"),
    "boolean": (frozenset({bool}), "true or false"),
    "text": (frozenset({str}), "a string"),
    None: (_NUMBERS | {bool, str}, "a number, a string or a boolean"),
}


def prepare(
    spec: TabularInput,
    instances: list[Any],
    column_types: Sequence[str | None] = (),
    *,
    may_be_rounded: bool = False,
) -> list[PreparedRow]:
    """One row per instance; its payload is (width,) of `spec.dtype`, or a tuple of values for "object".

    instances: lists, objects where columns are named, or 1-D arrays; in an array of floats NaN stands for a null.
    Without a declared width the first row sets it for the whole request. In an "object" row a null stays None,
    because what stands for a missing text is the estimator's choice. column_types: for "object" rows, see
    `service.inputs.prepare`.
    Raises InvalidInput with the row and column of what is wrong.
    """
    sent = instances
    if spec.columns is not None and any(type(row) is dict for row in instances):
        instances = _in_column_order(spec.columns, instances)
    width = _width(spec, instances)
    if not (len(instances) == 1 and type(instances[0]) is list and len(instances[0]) == width > 0):  # as most are
        raise_if_any(_shape_faults(spec, instances, width))
    if spec.dtype == "object":
        instances = _as_lists(instances, allow_null=spec.allow_null)
        if may_be_rounded:
            raise_if_rounded(chain.from_iterable(instances))
        raise_if_any(_value_faults(spec, instances, column_types or (None,) * width, _Places(spec.columns, sent)))
        return [PreparedRow(tuple(row), shape_key=("o", width)) for row in instances]

    # One array for all rows costs a fraction of one for each; the rows are views that share it.
    dtype = np.dtype(spec.dtype)
    array = to_array(_joined(instances), dtype, allow_null=spec.allow_null, may_be_rounded=may_be_rounded)
    if array is None:
        rows = _as_lists(instances, allow_null=spec.allow_null)
        raise_if_any(_number_faults(spec, rows, dtype, _Places(spec.columns, sent)))
        raise AssertionError("a row was refused without a fault")
    array = array.reshape(len(instances), width)
    if spec.without_null and np.isnan(array[:, spec.without_null]).any():
        rows = _as_lists(list(array), allow_null=True)
        raise_if_any(_number_faults(spec, rows, dtype, _Places(spec.columns, sent)))
    key = ("f", width)
    return [PreparedRow(row, shape_key=key) for row in array]


def _width(spec: TabularInput, instances: list[Any]) -> int:
    if spec.columns is not None:
        return len(spec.columns)
    if spec.width is not None:
        return spec.width
    return next((len(row) for row in instances if _is_row(row)), 0)


def _is_row(instance: Any) -> bool:
    return type(instance) is list or (type(instance) is np.ndarray and instance.ndim == 1)


def _shape_faults(spec: TabularInput, instances: list[Any], width: int) -> Iterator[Fault]:
    for i, row in enumerate(instances):
        if not _is_row(row):
            allowed = "a list of values" if spec.columns is None else "a list of values or an object of columns"
            yield Fault(f"instances[{i}]", f"must be {allowed}, not {name_of_type(row)}")
        elif not len(row):
            yield Fault(f"instances[{i}]", "must not be empty")
        elif len(row) != width:
            as_first = spec.width is None and spec.columns is None
            expected = f"{width}, like the first row" if as_first else f"{width}"
            yield Fault(f"instances[{i}]", f"has {len(row)} values; expected {expected}")


def _joined(rows: list[Any]) -> list[Any] | npt.NDArray[Any]:
    """The values of all rows, one row after the other; an array where the rows are arrays of one dtype."""
    if len(rows) == 1:
        return rows[0]  # type: ignore[no-any-return]
    if type(rows[0]) is np.ndarray and all(type(row) is np.ndarray and row.dtype == rows[0].dtype for row in rows):
        return np.concatenate(rows)
    return list(chain.from_iterable(_as_lists(rows)))


def _as_lists(rows: list[Any], *, allow_null: bool = False) -> list[Any]:
    """Rows that are arrays as lists of what JSON would have held, so that the rules for values are there once."""
    return [to_values(row, allow_null=allow_null) if type(row) is np.ndarray else row for row in rows]


def _number_faults(spec: TabularInput, rows: list[list[Any]], dtype: np.dtype[Any], places: _Places) -> Iterator[Fault]:
    for i, row in enumerate(rows):
        if spec.without_null:
            yield from (
                Fault(places.of(i, j), _null_fault(spec, "a number")) for j in spec.without_null if row[j] is None
            )
        for j, msg in faults_in(row, dtype, allow_null=spec.allow_null):
            yield Fault(places.of(i, j), _null_fault(spec, "a number") if row[j] is None else msg)


def _value_faults(
    spec: TabularInput, rows: list[list[Any]], column_types: Sequence[str | None], places: _Places
) -> Iterator[Fault]:
    columns = [(*_ALLOWED[kind], _DTYPE.get(kind or "", _FLOAT64)) for kind in column_types]
    for i, row in enumerate(rows):
        for j, (value, (allowed, name, dtype)) in enumerate(zip(row, columns, strict=True)):
            if value is None:
                if not spec.allow_null or j in spec.without_null:
                    yield Fault(places.of(i, j), _null_fault(spec, name))
            elif type(value) not in allowed:
                yield Fault(places.of(i, j), f"must be {name}, not {name_of_type(value)}")
            elif type(value) in _NUMBERS and (msg := fault_in(value, dtype)) is not None:
                yield Fault(places.of(i, j), msg)


def _null_fault(spec: TabularInput, name: str) -> str:
    if spec.allow_null:
        return f"must be {name}, not null: the model takes no missing value in this column"
    return (
        f"must be {name}, not null; a missing value has to be allowed in the model's bundle ([input] allow_null = true)"
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """Where values stand in a request, as its author wrote it: by name in an object, otherwise by position."""

    columns: tuple[str, ...] | None
    instances: list[Any]

    def of(self, row: int, column: int) -> str:
        if self.columns is None or type(self.instances[row]) is not dict:
            return f"instances[{row}][{column}]"
        return f"instances[{row}]{place_of_column(self.columns[column])}"


def place_of_column(name: str) -> str:
    """What leads to a column of the model in an object of columns; not at any length."""
    return f".{name}" if _PLAIN_NAME.fullmatch(name) else f"[{shown(name)}]"


def _in_column_order(columns: tuple[str, ...], instances: list[Any]) -> list[Any]:
    """The instances with every object turned into a list in the model's order."""
    rows: list[Any] = []
    for row in instances:
        if type(row) is dict:
            if len(row) != len(columns) or any(name not in row for name in columns):
                raise_if_any(_column_faults(columns, instances))
            row = [row[name] for name in columns]
        rows.append(row)
    return rows


def _column_faults(columns: tuple[str, ...], instances: list[Any]) -> Iterator[Fault]:
    known = frozenset(columns)
    for i, row in enumerate(instances):
        if type(row) is dict:
            for name in columns:
                if name not in row:
                    yield Fault(f"instances[{i}]", f"lacks the column {shown(name)}")
            unknown = sum(name not in known for name in row)
            if unknown:
                # Their names are the caller's own text, which is not repeated; the model's own are told.
                which = "a column" if unknown == 1 else f"{unknown} columns"
                yield Fault(f"instances[{i}]", f"has {which} that the model does not know; it knows {listed(columns)}")
