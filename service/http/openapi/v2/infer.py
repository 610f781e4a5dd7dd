"""Inference: tensors in JSON, or binary behind it."""

from __future__ import annotations

from typing import Any

from service.http.keys import Access
from service.http.openapi.answers import answer, headers
from service.http.openapi.errors import ErrorForm, errors
from service.http.openapi.operation import Operation
from service.http.openapi.parameters import REQUEST_ID
from service.http.openapi.predict import STATUSES
from service.http.openapi.references import ref
from service.http.openapi.served import Served
from service.http.openapi.v2.tensors import (
    data_schema,
    each_at_most_once,
    example_inputs,
    inputs_schema,
    parameters_schema,
)
from service.http.v2.datatypes import Datatype
from service.http.v2.declared import declared_outputs
from service.http.v2.parameters import MAX_TIMEOUT_US
from service.http.v2.wire import HEADER_LENGTH

TAG = "Open Inference Protocol"

# A version is named in the path alone.
_STATUSES = STATUSES - {409}

# The protocol's type of a priority; JSON integers beyond it are read as floats.
_UINT64_MAX = 2**64 - 1

_BINARY = {"type": "string", "format": "binary"}
_PRIORITY = "1 goes first, 0 and 2 are the default, more goes last."
_TIMEOUT = "Deadline of this request, in microseconds; at most REQUEST_TIMEOUT_MS; 0 for the default."

_HEADER_LENGTH = {
    "name": HEADER_LENGTH,
    "in": "header",
    "description": (
        "How many bytes at the front of the body are JSON; needed where binary tensors follow. With 0 the body is one "
        "row of the only input, without any JSON."
    ),
    "schema": {"type": "integer", "minimum": 0},
}

_OUTPUT = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "datatype": {"type": "string", "enum": list(map(str, Datatype))},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        "data": {"type": "array", "items": {"type": ["number", "string", "boolean"]}, "description": "Flat."},
        "parameters": {
            "type": "object",
            "properties": {"binary_data_size": {"type": "integer", "minimum": 0}},
            "required": ["binary_data_size"],
            "description": "In place of `data`: how many bytes behind the JSON are this tensor.",
        },
    },
    "required": ["name", "datatype", "shape"],
    "oneOf": [{"required": ["data"]}, {"required": ["parameters"]}],
    "additionalProperties": False,
}
_ANSWER = {
    "type": "object",
    "description": "The outputs that were asked for, in that order, or all of them.",
    "properties": {
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "id": {"type": "string", "description": "That of the request."},
        "parameters": {
            "type": "object",
            "properties": {"truncated": {"const": True, "description": "A text was cut."}},
            "required": ["truncated"],
            "additionalProperties": False,
        },
        "outputs": {"type": "array", "items": _OUTPUT},
    },
    "required": ["model_name", "model_version", "outputs"],
    "additionalProperties": False,
}


def infer_schemas(served: Served) -> dict[str, Any]:
    """The schemas of a request and its answer, by component name."""
    return {"V2InferBody": _body_schema(served), "V2Data": data_schema(served), "V2InferAnswer": _ANSWER}


def _body_schema(served: Served) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "Tensors by name. Keys that the protocol does not have are ignored.",
        "properties": {
            "id": {"type": ["string", "null"], "description": "Comes back with the answer."},
            "inputs": inputs_schema(served),
            "outputs": _wanted(served),
            "parameters": parameters_schema(_request_parameters(served)),
        },
        "required": ["inputs"],
    }


def _request_parameters(served: Served) -> dict[str, Any]:
    takes_proba = served.model is not None and "proba" in served.model.parameters
    return {
        "binary_data_output": {"type": "boolean", "description": "Answer with binary tensors."},
        "priority": {"type": "integer", "minimum": 0, "maximum": _UINT64_MAX, "description": _PRIORITY},
        "timeout": {"type": "integer", "minimum": 0, "maximum": MAX_TIMEOUT_US, "description": _TIMEOUT},
        "sequence_id": {"enum": [0, "", False], "description": "Sequences are not served."},
        **({"proba": {"type": "boolean", "description": "Answer with probabilities."}} if takes_proba else {}),
    }


def _wanted(served: Served) -> dict[str, Any]:
    """The list `outputs` of a request."""
    model = served.model
    names = [] if model is None else [tensor.name for tensor in declared_outputs(model.output, served.sample)]
    asked = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": names} if names else {"type": "string"},
            "parameters": parameters_schema(
                {
                    "binary_data": {"type": "boolean", "description": "Wins over `binary_data_output`."},
                    "classification": {"enum": [0, False], "description": "The extension is not served."},
                },
                {"shared_memory_region"},
            ),
        },
        "required": ["name"],
    }
    schema: dict[str, Any] = {"type": ["array", "null"], "items": asked, "description": "Those wanted; else all."}
    return schema | {"maxItems": len(names), "allOf": each_at_most_once(names)} if names else schema


def _body(served: Served) -> dict[str, Any]:
    content: dict[str, Any] = {}
    model = served.model
    if model is None or model.input.kind != "image":
        content["application/json"] = {"schema": ref("V2InferBody")}
        inputs = None if model is None else example_inputs(model)
        if inputs is not None:
            content["application/json"]["examples"] = {"row": {"summary": "One row", "value": {"inputs": inputs}}}
    content["application/octet-stream"] = {
        "schema": _BINARY
        | {
            "description": (
                f"JSON of {HEADER_LENGTH} bytes, and behind it the binary data of each input that has "
                "`parameters.binary_data_size` in the place of `data`."
            )
        }
    }
    return {"required": True, "content": content}


def _infer(served: Served) -> dict[str, Any]:
    done = answer("The outputs.", "application/json", ref("V2InferAnswer"))
    done["headers"] = headers(HEADER_LENGTH)
    done["content"]["application/octet-stream"] = {
        "schema": _BINARY | {"description": "The same as JSON, and behind it the binary data of the outputs."}
    }
    return {
        "parameters": [_HEADER_LENGTH, REQUEST_ID],
        "requestBody": _body(served),
        "responses": {"200": done, **errors(_STATUSES, ErrorForm.V2)},
    }


def _operation(path: str, operation_id: str, summary: str) -> Operation:
    return Operation("post", path, operation_id, TAG, summary, _infer, Access.INFERENCE, ErrorForm.V2)


INFER = (
    _operation("/v2/models/{name}/infer", "v2_infer", "Infer"),
    _operation("/v2/models/{name}/versions/{version}/infer", "v2_infer_version", "Infer with one version"),
)
