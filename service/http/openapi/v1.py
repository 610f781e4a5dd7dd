"""TensorFlow Serving's operations."""

from __future__ import annotations

from typing import Any

from loaders.signature import TabularInput
from service.http.keys import Access
from service.http.openapi.answers import answer
from service.http.openapi.bodies import most_instances
from service.http.openapi.errors import ErrorForm, errors
from service.http.openapi.instances import cells, example
from service.http.openapi.operation import Operation
from service.http.openapi.parameters import REQUEST_ID
from service.http.openapi.predict import STATUSES
from service.http.openapi.references import ref
from service.http.openapi.served import Served
from service.http.v1 import SIGNATURE, STATES

TAG = "TensorFlow Serving"

# A version is named in the path alone.
_STATUSES = STATUSES - {409}

_VERSION = {
    "type": "object",
    "properties": {
        "version": {"type": "string"},
        "state": {"type": "string", "enum": sorted(set(STATES.values()))},
        "status": {
            "type": "object",
            "properties": {
                "error_code": {"type": "string", "enum": ["OK", "UNKNOWN"]},
                "error_message": {"type": "string", "description": "Empty when all is well."},
            },
            "required": ["error_code", "error_message"],
            "additionalProperties": False,
        },
    },
    "required": ["version", "state", "status"],
    "additionalProperties": False,
}
_STATUS = {
    "type": "object",
    "properties": {"model_version_status": {"type": "array", "items": _VERSION, "minItems": 1}},
    "required": ["model_version_status"],
    "additionalProperties": False,
}
_PREDICTIONS = {"type": "array", "items": ref("Prediction"), "minItems": 1}
_ANSWER = {
    "type": "object",
    "description": "One prediction for each row, under `predictions` for `instances` and under `outputs` for `inputs`.",
    "properties": {"predictions": _PREDICTIONS, "outputs": _PREDICTIONS},
    "oneOf": [{"required": ["predictions"]}, {"required": ["outputs"]}],
    "additionalProperties": False,
}


def v1_schemas(served: Served) -> dict[str, Any]:
    """The schemas of the protocol, by component name."""
    return {"V1PredictBody": _body_schema(served), "V1PredictAnswer": _ANSWER, "V1Status": _STATUS}


def _body_schema(served: Served) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "Rows (`instances`), or columns (`inputs`).",
        "properties": {
            "instances": _rows(ref("Instance"), served) | {"description": "Row format."},
            "inputs": _columnar(served) | {"description": "Columnar format."},
            "signature_name": {"type": "string", "enum": [SIGNATURE, ""], "description": "The only one."},
        },
        "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
        "additionalProperties": False,
    }


def _rows(row: dict[str, Any], served: Served) -> dict[str, Any]:
    return {"type": "array", "items": row, "minItems": 1, "maxItems": most_instances(served)}


def _columnar(served: Served) -> dict[str, Any]:
    """A list of the only input, or an object with a list for each."""
    rows = {"title": "The only input", **_rows(ref("Instance"), served)}
    model = served.model
    if model is None:
        return {"anyOf": [rows, {"title": "Inputs by name", "type": "object", "minProperties": 1}]}
    if isinstance(model.input, TabularInput) and model.input.columns is not None:
        columns = {
            name: _rows(_alone_or_in_list(cell), served)
            for name, cell in zip(model.input.columns, cells(model), strict=True)
        }
        named = {"properties": columns, "required": list(columns), "additionalProperties": False}
    else:
        named = {
            "additionalProperties": _rows(ref("Instance"), served),
            "minProperties": 1,
            "maxProperties": 1,
        }
    return {"anyOf": [rows, {"title": "Inputs by name", "type": "object", **named}]}


def _alone_or_in_list(cell: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [cell, {"type": "array", "items": cell, "minItems": 1, "maxItems": 1}]}


def _body(served: Served) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": ref("V1PredictBody")}
    instance = None if served.model is None else example(served.model)
    if instance is not None:
        media["examples"] = {
            "rows": {"summary": "Row format", "value": {"instances": [instance]}},
            "columns": {"summary": "Columnar format", "value": {"inputs": [instance]}},
        }
    return {"required": True, "content": {"application/json": media}}


def _predict(served: Served) -> dict[str, Any]:
    return {
        "parameters": [REQUEST_ID],
        "requestBody": _body(served),
        "responses": {
            "200": answer("The predictions.", "application/json", ref("V1PredictAnswer")),
            **errors(_STATUSES, ErrorForm.V1),
        },
    }


def _status(_: Served) -> dict[str, Any]:
    return {
        "responses": {
            "200": answer("Its versions.", "application/json", ref("V1Status")),
            **errors([404, 503], ErrorForm.V1),
        }
    }


def _predict_operation(path: str, operation_id: str, summary: str) -> Operation:
    return Operation("post", path, operation_id, TAG, summary, _predict, Access.INFERENCE, ErrorForm.V1)


def _status_operation(path: str, operation_id: str, summary: str) -> Operation:
    return Operation("get", path, operation_id, TAG, summary, _status, form=ErrorForm.V1)


V1 = (
    _predict_operation("/v1/models/{name}:predict", "v1_predict", "Predict"),
    _predict_operation(
        "/v1/models/{name}/versions/{version}:predict", "v1_predict_version", "Predict with one version"
    ),
    _status_operation("/v1/models/{name}", "v1_status", "Which versions there are"),
    _status_operation("/v1/models/{name}/versions/{version}", "v1_status_version", "Whether a version answers"),
)
