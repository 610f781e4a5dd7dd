"""TensorFlow Serving's columnar format: from columns to rows, and from places in rows back to places in columns."""

from __future__ import annotations

import re
from typing import Any

from loaders.signature import InputSpec, TabularInput
from service.errors import Fault, InvalidInput
from service.http.places import PlaceOf
from service.inputs.tabular import place_of_column

# How `service.inputs.prepare` names a place.
_PLACE = re.compile(r"instances(?:\[(\d+)\](.*))?", re.DOTALL)

# The value of `inputs`, of which no more is known than what kind of JSON value it is.
Columns = list[Any] | dict[str, Any]


def to_rows(columns: Columns, spec: InputSpec) -> list[Any]:
    """The rows of the value of `inputs`: a list is the only input; an object has one list for each, by name.

    Raises InvalidInput.
    """
    if isinstance(columns, list):
        return columns
    if not all(isinstance(column, list) for column in columns.values()):
        raise InvalidInput.at("inputs", "must be a list, or an object of lists")
    if _names(spec):
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            raise InvalidInput.at("inputs", "the columns differ in length")
        names = list(columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*map(_flat, columns.values()), strict=True)]
    if len(columns) != 1:
        raise InvalidInput.at("inputs", "must hold one input, which is all that this model takes")
    return next(iter(columns.values()))


def relocated(error: InvalidInput, columns: Columns, spec: InputSpec) -> InvalidInput:
    """`error` with the places of instances named as places in `columns`, as the caller has sent them.

    What is wrong with each row alike, as a column that is missing, is wrong once in columns.
    """
    faults = (Fault(_relocated(fault.loc, columns, spec), fault.msg) for fault in error.faults)
    return InvalidInput(*dict.fromkeys(faults))


def place_in_only_input(columns: Columns) -> PlaceOf:
    """How the caller knows each row of the only input."""
    name = _only_input(columns)
    return lambda row: f"{name}[{row}]"


def _relocated(loc: str, columns: Columns, spec: InputSpec) -> str:
    place = _PLACE.fullmatch(loc)
    if place is None:
        return loc
    row, rest = place.groups()
    if row is None:
        return "inputs"
    if isinstance(columns, list) or not _names(spec):
        return f"{place_in_only_input(columns)(int(row))}{rest}"
    if not rest:
        return "inputs"
    return f"inputs{rest}[{row}]{_inner(columns, spec, rest, int(row))}"


def _inner(columns: dict[str, list[Any]], spec: InputSpec, place: str, row: int) -> str:
    """What leads to the value itself, where the column at `place` was sent as [rows, 1]."""
    name = next((name for name in _names(spec) if place_of_column(name) == place), None)
    return "[0]" if name is not None and _is_alone(columns[name][row]) else ""


def _only_input(columns: Columns) -> str:
    """The name that the caller gave it is the caller's own text, and is not repeated."""
    return "inputs.*" if isinstance(columns, dict) else "inputs"


def _names(spec: InputSpec) -> tuple[str, ...]:
    """Of the columns that an object has one list for, each; empty where it has one list of the only input."""
    return spec.columns or () if isinstance(spec, TabularInput) else ()


def _flat(column: list[Any]) -> list[Any]:
    """A column may be sent as [rows] or as [rows, 1]."""
    return [value[0] if _is_alone(value) else value for value in column]


def _is_alone(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1
