"""The bodies of a predict request, from the same model that reads them."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, TextInput
from service.http.body import PredictBody
from service.http.openapi.instances import example
from service.http.openapi.references import ref
from service.http.openapi.served import Served

_PARAMETER = {"type": ["string", "number", "boolean"]}
_PROBA = {"type": "boolean", "description": "Answer with the probability of each class, in the order of `classes`."}
_BINARY = {"type": "string", "format": "binary"}
_TIMEOUT = "Deadline of this request, milliseconds; at most REQUEST_TIMEOUT_MS, which is {:g} here."
_VERSION = "The version that must answer; another one served is 409."

# What a model that is not known yet may take.
_GENERIC_EXAMPLES = {
    "rows": {"summary": "Rows of a table", "value": {"instances": [[0, 0, 0]]}},
    "text": {"summary": "A text", "value": {"text": "a text"}},
}


def predict_body(served: Served) -> dict[str, Any]:
    """The Request Body Object: JSON always, files where the model takes pictures."""
    model = served.model
    content: dict[str, Any] = {
        "application/json": {"schema": ref("PredictBody"), **_with_examples(json_examples(model))},
    }
    if model is None or isinstance(model.input, ImageInput):
        content["multipart/form-data"] = {
            "schema": ref("PredictForm"),
            "encoding": {"file": {"contentType": "image/*"}},
        }
        content["image/*"] = {"schema": _BINARY | {"description": "One picture file."}}
    return {"required": True, "content": content}


def json_examples(model: ModelHandle | None) -> dict[str, Any]:
    """Named examples of the JSON body; none where one would be too long."""
    if model is None:
        return _GENERIC_EXAMPLES
    instance = example(model)
    if instance is None:
        return {}
    several = {"summary": "Instances", "value": {"instances": [instance]}}
    if isinstance(model.input, TextInput):
        return {"text": {"summary": "One text", "value": {"text": instance}}, "instances": several}
    return {"instances": several}


def body_schemas(served: Served) -> dict[str, Any]:
    """The schemas of both bodies, by component name."""
    schemas = {"PredictBody": _json_schema(served)}
    if served.model is None or isinstance(served.model.input, ImageInput):
        schemas["PredictForm"] = _form_schema(served)
    return schemas


def _with_examples(examples: dict[str, Any]) -> dict[str, Any]:
    return {"examples": examples} if examples else {}


def _json_schema(served: Served) -> dict[str, Any]:
    """PredictBody's own schema, told what its `Any`s are for this model and which keys exclude each other."""
    schema = deepcopy(_schema_of_reader())
    schema["description"] = "A predict request."
    properties = schema["properties"]
    for described in properties.values():
        # Made from the name, and worth nothing to a reader.
        described.pop("title", None)
        described.pop("default", None)
    instances = _branch(properties["instances"], "array")
    instances.update(items=ref("Instance"), minItems=1, maxItems=most_instances(served))
    properties["model_version"]["description"] = _VERSION
    properties["timeout_ms"]["description"] = _TIMEOUT.format(served.settings.request_timeout_ms)
    properties["parameters"] = _parameters(served.model)
    if served.model is not None and not isinstance(served.model.input, TextInput):
        del properties["text"]
        properties["instances"] = instances
        return schema | {"required": ["instances"]}
    _branch(properties["text"], "string").update(maxLength=served.settings.max_text_chars)
    properties["text"]["description"] = "Short for one instance of a text model."
    return schema | {"oneOf": [_only("instances", "array"), _only("text", "string")]}


@cache
def _schema_of_reader() -> dict[str, Any]:
    """Made once: it costs more than all the rest of the document."""
    return PredictBody.model_json_schema()


def _form_schema(served: Served) -> dict[str, Any]:
    files = {"type": "array", "items": _BINARY, "minItems": 1, "maxItems": most_instances(served)}
    return {
        "type": "object",
        "description": "A form with one or more picture files.",
        "properties": {
            "file": files | {"description": "A picture; give the part again for more of them."},
            "model_version": {"type": "string", "description": _VERSION},
            "timeout_ms": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": _TIMEOUT.format(served.settings.request_timeout_ms),
            },
        },
        "required": ["file"],
        "additionalProperties": False,
    }


def most_instances(served: Served) -> int:
    """How many instances one request may have."""
    return min(served.settings.max_instances, served.settings.max_queue_size)


def _parameters(model: ModelHandle | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "description": "Options of the model."}
    if model is None:
        return schema | {"additionalProperties": _PARAMETER}
    if not model.parameters:
        schema["description"] = "Options of the model; this one has none."
    known = {name: _PROBA if name == "proba" else _PARAMETER for name in sorted(model.parameters)}
    return schema | {"properties": known, "additionalProperties": False}


def _branch(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """The part of a nullable schema that is not null."""
    return next(part for part in schema["anyOf"] if part["type"] == kind)


def _only(name: str, kind: str) -> dict[str, Any]:
    """`name` given, and not null: PredictBody counts a null as not given."""
    return {"required": [name], "properties": {name: {"type": kind}}}
