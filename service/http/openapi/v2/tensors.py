"""The tensors of a request as JSON Schema: what the model declares, in the protocol's words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from loaders.handle import ModelHandle
from loaders.signature import InputSpec, TabularInput, TensorInput
from service.http.openapi.bodies import most_instances
from service.http.openapi.instances import column_types, example
from service.http.openapi.references import ref
from service.http.openapi.served import Served
from service.http.v2.datatypes import Datatype, datatype_of
from service.http.v2.declared import ANY, INPUT, DeclaredTensor, declared_inputs
from service.inputs.nesting import MAX_DEPTH

_SCALAR = {"type": ["string", "number", "boolean"]}

# BF16 has no JSON form.
_IN_JSON: list[Datatype] = [datatype for datatype in Datatype if datatype is not Datatype.BF16]
_NUMBERS: list[Datatype] = [datatype for datatype in _IN_JSON if datatype not in (Datatype.BOOL, Datatype.BYTES)]

# As `service.inputs.tabular` reads a column of each type, where a table holds more than numbers.
_OF_COLUMN_TYPE: dict[str | None, list[Datatype]] = {
    "number": _NUMBERS,
    "numeric": [Datatype.BOOL, *_NUMBERS],
    "boolean": [Datatype.BOOL],
    "text": [Datatype.BYTES],
    None: _IN_JSON,
}

_ELEMENT = {Datatype.BYTES: "string", Datatype.BOOL: "boolean"}


def inputs_schema(served: Served) -> dict[str, Any]:
    """The list `inputs` of a request in JSON."""
    model = served.model
    if model is None:
        tensor = _tensor({"type": "string"}, _IN_JSON, _any_shape(served))
        return {"type": "array", "items": tensor, "minItems": 1}
    whole = _just([_input(served, model.input, _whole_datatypes(model), declared) for declared in _whole(model.input)])
    if not isinstance(model.input, TabularInput) or model.input.columns is None:
        return whole
    columns = [
        _input(served, model.input, datatypes, declared, may_be_flat=True)
        for declared, datatypes in zip(_declared(model), _column_datatypes(model), strict=True)
    ]
    by_column = _just(columns) | {"title": "Column by column"}
    # A column of that name leaves no name for the whole.
    return by_column if INPUT in model.input.columns else {"anyOf": [by_column, whole | {"title": "Whole rows"}]}


def data_schema(served: Served) -> dict[str, Any]:
    """The elements of a tensor, flat or nested like its shape."""
    datatypes = _IN_JSON if served.model is None else _whole_datatypes(served.model)
    kinds = sorted({_ELEMENT.get(datatype, "number") for datatype in datatypes})
    element: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    if "string" in kinds:
        element["maxLength"] = served.settings.max_text_chars
    return {
        "type": "array",
        "description": "As many elements as the shape makes, row by row: flat, or nested like the shape.",
        "items": {"anyOf": [element, ref("V2Data")]},
    }


def example_inputs(model: ModelHandle) -> list[dict[str, Any]] | None:
    """The tensors of one row that the model takes; None when they would be too long to show, or have no JSON form."""
    instance = example(model)
    if instance is None or model.input.kind == "image":
        return None
    values = list(instance.values()) if isinstance(instance, dict) else [instance]
    return [_example(tensor, value) for tensor, value in zip(_declared(model), values, strict=True)]


def parameters_schema(own: dict[str, Any], refused: Iterable[str] = ()) -> dict[str, Any]:
    """An object of parameters: some with a meaning, others that are ignored, and some that are not served."""
    schema: dict[str, Any] = {"type": ["object", "null"], "properties": own, "additionalProperties": _SCALAR}
    names = sorted(refused)
    return schema | {"propertyNames": {"not": {"enum": names}}} if names else schema


def each_at_most_once(names: Sequence[str], least: int = 0) -> list[dict[str, Any]]:
    """That each of `names` is the `name` of one item of a list at most, and of `least`."""
    return [
        {
            "contains": {"type": "object", "properties": {"name": {"const": name}}, "required": ["name"]},
            "minContains": least,
            "maxContains": 1,
        }
        for name in names
    ]


def _just(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    """A list of all `tensors`, in any order."""
    schema: dict[str, Any] = {"type": "array", "minItems": len(tensors), "maxItems": len(tensors)}
    if len(tensors) == 1:
        return schema | {"items": tensors[0]}
    names = [tensor["properties"]["name"]["const"] for tensor in tensors]
    return schema | {"items": {"anyOf": tensors}, "allOf": each_at_most_once(names, least=1)}


def _input(
    served: Served,
    spec: InputSpec,
    datatypes: Sequence[Datatype],
    declared: DeclaredTensor,
    *,
    may_be_flat: bool = False,
) -> dict[str, Any]:
    may_be_flat = may_be_flat or not isinstance(spec, TabularInput | TensorInput)
    extents = [{"type": "integer", "minimum": 1} if extent == ANY else {"const": extent} for extent in declared.shape]
    extents[0] |= {"maximum": most_instances(served), "description": "Rows."}
    shape: dict[str, Any] = {"type": "array", "prefixItems": extents, "maxItems": len(extents)}
    shape["minItems"] = 1 if may_be_flat else len(extents)
    if isinstance(spec, TensorInput) and spec.shape is None:
        shape = _any_shape(served)
    return _tensor({"const": declared.name}, datatypes, shape) | {"title": declared.name}


def _any_shape(served: Served) -> dict[str, Any]:
    rows = {"type": "integer", "minimum": 1, "maximum": most_instances(served), "description": "Rows."}
    extent = {"type": "integer", "minimum": 1}
    return {"type": "array", "prefixItems": [rows], "items": extent, "minItems": 1, "maxItems": MAX_DEPTH}


def _tensor(name: dict[str, Any], datatypes: Sequence[Datatype], shape: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": name,
            "datatype": {"type": "string", "enum": list(map(str, datatypes))},
            "shape": shape | {"description": "The first extent counts the rows."},
            "data": ref("V2Data"),
            "parameters": parameters_schema({}, {"binary_data_size", "shared_memory_region"}),
        },
        "required": ["name", "datatype", "shape", "data"],
    }


def _declared(model: ModelHandle) -> tuple[DeclaredTensor, ...]:
    return declared_inputs(model.input, column_types(model))


def _whole(spec: InputSpec) -> tuple[DeclaredTensor, ...]:
    """The one tensor that stands for all of a row."""
    if isinstance(spec, TabularInput) and spec.columns is not None:
        return (DeclaredTensor(INPUT, Datatype.FP64, (ANY, len(spec.columns))),)
    return declared_inputs(spec)


def _whole_datatypes(model: ModelHandle) -> list[Datatype]:
    spec = model.input
    if isinstance(spec, TabularInput):
        columns = _column_datatypes(model)
        return [datatype for datatype in _IN_JSON if any(datatype in taken for taken in columns)]
    return [datatype_of(np.dtype(spec.dtype))] if isinstance(spec, TensorInput) else [Datatype.BYTES]


def _column_datatypes(model: ModelHandle) -> list[list[Datatype]]:
    """What each column takes; of a table without columns, what all of them take."""
    spec = model.input
    assert isinstance(spec, TabularInput)
    if spec.dtype != "object":
        return [_NUMBERS] * len(spec.columns or (INPUT,))
    types = column_types(model) or (None,) * len(spec.columns or (INPUT,))
    return [_OF_COLUMN_TYPE[kind] for kind in types]


def _example(tensor: DeclaredTensor, value: Any) -> dict[str, Any]:
    extents = np.shape(value)
    # A value alone is a column, or a text; a number may be sent as text only where nothing is known of the column.
    shape = [1, *extents] if extents or len(tensor.shape) == 1 else [1, 1]
    data = np.asarray(value).reshape(-1).tolist()
    is_text = tensor.datatype is Datatype.BYTES
    datatype = Datatype.FP64 if is_text and not isinstance(value, str) else tensor.datatype
    return {"name": tensor.name, "datatype": str(datatype), "shape": shape, "data": data}
