"""What one instance of a request must be, as JSON Schema: the declared input in other words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, TabularInput, TensorInput, TextInput
from service.http.openapi.references import ref
from service.inputs.example import example_instance
from service.settings import Settings

# An example of more numbers than this is too long to be read, and would make the document too long to be sent.
_MAX_EXAMPLE_NUMBERS = 4096

_BASE64 = {"type": "string", "contentEncoding": "base64", "minLength": 1, "description": "The file, base64."}
_PICTURE = {
    "type": "object",
    "title": "Picture",
    "description": "The bytes of a picture file, base64; a data URI will do.",
    "properties": {"b64": _BASE64},
    "required": ["b64"],
    "additionalProperties": False,
}

# As `service.inputs.tabular` reads a column of each type.
_OF_COLUMN_TYPE: dict[str | None, list[str]] = {
    "number": ["number"],
    "float32": ["number"],
    "integer": ["integer"],
    "numeric": ["number", "boolean"],
    "boolean": ["boolean"],
    "text": ["string"],
    None: ["number", "string", "boolean"],
}


def instance_schema(model: ModelHandle | None, settings: Settings) -> dict[str, Any]:
    """The schema of one instance; without a model, of any kind of instance."""
    if model is None:
        return _any_kind(settings)
    spec, types = model.input, column_types(model)
    if isinstance(spec, TabularInput):
        return _tabular(spec, types)
    if isinstance(spec, TextInput):
        return _text(settings)
    return _PICTURE if isinstance(spec, ImageInput) else _tensor(spec)


def cells(model: ModelHandle) -> list[dict[str, Any]]:
    """The schema of the value in each column of a model of tables."""
    assert isinstance(model.input, TabularInput)
    return _cells(model.input, column_types(model))


def column_types(model: ModelHandle) -> Sequence[str | None]:
    """What is known of the columns of a table; empty when nothing is."""
    known: Sequence[str | None] = model.metadata.get("column_types", ())
    return known


def example(model: ModelHandle) -> Any | None:
    """An instance that the model takes; None when it would be too long to show."""
    if _numbers_in(model.input) > _MAX_EXAMPLE_NUMBERS:
        return None
    return example_instance(model.input, column_types(model), model.metadata.get("column_examples", ()))


def _numbers_in(spec: InputSpec) -> int:
    if isinstance(spec, TabularInput):
        return spec.width or len(spec.columns or ())
    if isinstance(spec, TensorInput) and spec.shape is not None:
        return int(np.prod([extent or 1 for extent in spec.shape]))
    return 1


def _any_kind(settings: Settings) -> dict[str, Any]:
    value = {"type": ["number", "string", "boolean", "null"]}
    return {
        "description": "What the model takes; this document tells it where one model is served, once that is loaded.",
        "anyOf": [
            {"title": "Row", "type": "array", "items": value, "minItems": 1},
            {"title": "Row by column name", "type": "object", "additionalProperties": value},
            _text(settings),
            _PICTURE,
            {"title": "Tensor", "type": "array", "items": {"type": ["number", "boolean", "array"]}, "minItems": 1},
        ],
    }


def _text(settings: Settings) -> dict[str, Any]:
    return {"title": "Text", "type": "string", "maxLength": settings.max_text_chars}


def _tabular(spec: TabularInput, types: Sequence[str | None]) -> dict[str, Any]:
    """A list of values, or an object where the columns have names."""
    width = spec.width if spec.columns is None else len(spec.columns)
    values = _cells(spec, types)
    row: dict[str, Any] = {"title": "Row", "type": "array", "minItems": width or 1}
    if all(value == values[0] for value in values):
        row["items"] = values[0]
    else:
        row["prefixItems"] = values
    if width is None:
        return row | {"description": "Values in the model's order; all rows of a request have the same number."}
    row["maxItems"] = width
    if spec.columns is None:
        return row | {"description": f"{width} values in the model's order."}
    named = {
        "title": "Row by column name",
        "type": "object",
        "properties": dict(zip(spec.columns, values, strict=True)),
        "required": list(spec.columns),
        "additionalProperties": False,
    }
    return {"anyOf": [named, row | {"description": "Values in the order of the columns."}]}


def _cells(spec: TabularInput, types: Sequence[str | None]) -> list[dict[str, Any]]:
    width = spec.width if spec.columns is None else len(spec.columns)
    return [_cell(spec, kind, position) for position, kind in enumerate(types or (None,) * (width or 1))]


def _cell(spec: TabularInput, kind: str | None, position: int) -> dict[str, Any]:
    if spec.dtype == "object":
        types = list(_OF_COLUMN_TYPE[kind])
        limits: dict[str, Any] = {}
    else:
        types, limits = ["number"], _bounds(spec.dtype)
    if spec.allow_null and position not in spec.without_null:
        types.append("null")
    return {"type": types[0] if len(types) == 1 else types, **limits}


def _tensor(spec: TensorInput) -> dict[str, Any]:
    schema = _number(spec.dtype)
    if spec.shape is None:
        nested = {"type": "array", "items": ref("Instance"), "minItems": 1}
        shape = f"Nested lists of {spec.dtype}, alike in length at each level."
        return {"title": "Tensor", "description": shape, "anyOf": [schema, nested]}
    for extent in reversed(spec.shape):
        schema = {"type": "array", "items": schema, "minItems": extent or 1}
        if extent is not None:
            schema["maxItems"] = extent
    shown = " x ".join("any" if extent is None else str(extent) for extent in spec.shape)
    return schema | {"title": "Tensor", "description": f"{spec.dtype}, {shown or 'a single number'}."}


def _number(dtype_name: str) -> dict[str, Any]:
    dtype = np.dtype(dtype_name)
    if dtype.kind == "b":
        return {"type": "boolean"}
    if dtype.kind in "iu":
        return {"type": "integer", "minimum": int(np.iinfo(dtype).min), "maximum": int(np.iinfo(dtype).max)}
    return {"type": "number", **_bounds(dtype_name)}


def _bounds(dtype_name: str) -> dict[str, Any]:
    """What a type narrower than JSON's own numbers can hold."""
    dtype = np.dtype(dtype_name)
    if dtype.itemsize >= np.dtype(np.float64).itemsize:
        return {}
    largest = float(np.finfo(dtype).max)
    return {"minimum": -largest, "maximum": largest}
