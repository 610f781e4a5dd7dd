"""From the named tensors of a request to its rows, as `service.inputs.prepare` takes them; no rule of rows is here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from loaders.signature import ImageInput, InputSpec, TabularInput, TensorInput
from service.errors import Fault, InvalidInput
from service.http.v2.datatypes import datatype_of
from service.http.v2.declared import INPUT, accepted_names
from service.inputs.names import listed
from service.inputs.numbers import to_values

# How `prepare` names a place.
_PLACE = re.compile(r"instances(?:\[(\d+)\](?:\[(\d+)\])?(.*))?", re.DOTALL)


def to_instances(spec: InputSpec, inputs: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
    """One instance per row: an array of numbers, a list of a table's values, a string, or the bytes of a picture.

    inputs: by name, in the order of the request; their first dimension counts the rows.
    Raises InvalidInput for inputs that are missing, or have not the rank or datatype of this kind of model.
    """
    if isinstance(spec, TabularInput) and _is_by_column(spec, inputs):
        return _rows_of_columns(spec, inputs)
    array = inputs.get(INPUT)
    if array is None:
        missing = [name for name in accepted_names(spec) if name not in inputs and name != INPUT] or [INPUT]
        raise InvalidInput.at("inputs", f"lack {listed(missing)}, which this model needs")
    if len(inputs) > 1:
        raise InvalidInput.at("inputs", f"hold both single columns and {INPUT!r}, which stands for all of them")
    if isinstance(spec, TabularInput):
        if array.ndim != 2:
            raise InvalidInput.at("inputs[0].shape", f"has {array.ndim} dimensions; expected [rows, values]")
        if spec.dtype == "object" or array.dtype == object:
            return [_values(row, f"inputs[0].data[{i}]", spec) for i, row in enumerate(array)]
        return list(array)
    if isinstance(spec, TensorInput):
        if array.dtype != np.dtype(spec.dtype):
            raise InvalidInput.at("inputs[0].datatype", f"must be {datatype_of(np.dtype(spec.dtype))} for this model")
        return list(array) if array.ndim > 1 else [array[i : i + 1].reshape(()) for i in range(len(array))]
    if array.dtype != object:
        raise InvalidInput.at("inputs[0].datatype", "must be BYTES for this model")
    if array.size != len(array) or array.ndim > 2:
        raise InvalidInput.at("inputs[0].shape", "must be [rows] or [rows, 1] for this model")
    elements = array.reshape(-1).tolist()
    return elements if isinstance(spec, ImageInput) else _texts(elements, "inputs[0].data")


def relocated(error: InvalidInput, spec: InputSpec, inputs: Iterable[str]) -> InvalidInput:
    """`error` with the places of instances named as places in the tensors of the request.

    inputs: the names, in the order of the request.
    """
    names = list(inputs)
    columns = spec.columns if isinstance(spec, TabularInput) and _is_by_column(spec, names) else None
    positions = [names.index(column) for column in columns or ()]
    return InvalidInput(*(Fault(_relocated(fault.loc, positions), fault.msg) for fault in error.faults))


def place_of_row(row: int) -> str:
    """The place of a row in the only input of a request; what is wrong in one of several comes as an InvalidInput."""
    return f"inputs[0].data[{row}]"


def _relocated(loc: str, positions: list[int]) -> str:
    place = _PLACE.fullmatch(loc)
    if place is None:
        return loc
    row, column, rest = place.groups()
    if row is None:
        return "inputs"
    if column is None:
        return f"{place_of_row(int(row))}{rest}"
    if positions:
        return f"inputs[{positions[int(column)]}].data[{row}]{rest}"
    return f"inputs[0].data[{row}][{column}]{rest}"


def _is_by_column(spec: TabularInput, names: Iterable[str]) -> bool:
    return spec.columns is not None and set(names) == set(spec.columns)


def _rows_of_columns(spec: TabularInput, inputs: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
    count = len(next(iter(inputs.values())))
    for position, array in enumerate(inputs.values()):
        if array.size != len(array) or array.ndim > 2:
            raise InvalidInput.at(f"inputs[{position}].shape", "must be [rows] or [rows, 1]: one column of the table")
        if len(array) != count:
            raise InvalidInput.at(f"inputs[{position}].shape", f"has {len(array)} rows; inputs[0] has {count}")
    assert spec.columns is not None
    columns = [inputs[name].reshape(-1) for name in spec.columns]
    if spec.dtype != "object" and len({array.dtype for array in columns}) == 1 and columns[0].dtype != object:
        return list(np.stack(columns, axis=1))
    order = list(inputs)
    values = [
        _values(array, f"inputs[{order.index(name)}].data", spec)
        for name, array in zip(spec.columns, columns, strict=True)
    ]
    return [list(row) for row in zip(*values, strict=True)]


def _values(array: npt.NDArray[Any], loc: str, spec: TabularInput) -> list[Any]:
    if array.dtype == object:
        return _texts(array.tolist(), loc)
    return to_values(array, allow_null=spec.allow_null)


def _texts(elements: list[bytes], loc: str) -> list[Any]:
    texts = []
    for i, element in enumerate(elements):
        try:
            texts.append(element.decode())
        except UnicodeDecodeError:
            raise InvalidInput.at(f"{loc}[{i}]", "is not UTF-8") from None
    return texts
