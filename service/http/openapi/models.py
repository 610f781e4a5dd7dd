"""The operations that tell which models and versions there are."""

from __future__ import annotations

from typing import Any

from loaders.signature import ImageInput, TabularInput, TensorInput, TextInput
from service.http.openapi.answers import answer
from service.http.openapi.errors import errors
from service.http.openapi.operation import Operation
from service.http.openapi.references import ref
from service.http.openapi.served import Served
from service.models.keeper import ModelState

_KINDS = [spec.kind for spec in (TabularInput, TextInput, ImageInput, TensorInput)]

_VERSION = {
    "type": "object",
    "properties": {
        "version": {"type": "string"},
        "state": {
            "type": "string",
            "enum": [state.value for state in ModelState],
            "description": "`available`: on disk, and loaded when it is first asked for.",
        },
        "format": {"type": "string", "description": "This and what follows is known of loaded versions."},
        "device": {"type": "string"},
        "input": {"type": "string", "enum": _KINDS, "description": "The kind of input."},
        "warnings": {"type": "array", "items": {"type": "string"}, "description": "What was found when it was loaded."},
        "reason": {"type": "string", "description": "Why its last load failed."},
    },
    "required": ["version", "state"],
    "additionalProperties": False,
}
MODEL = {
    "type": "object",
    "description": "One model with its versions, oldest first.",
    "properties": {
        "name": {"type": "string"},
        "default_version": {"type": ["string", "null"], "description": "The one that answers where none is named."},
        "versions": {"type": "array", "items": _VERSION, "minItems": 1},
    },
    "required": ["name", "default_version", "versions"],
    "additionalProperties": False,
}
MODEL_LIST = {
    "type": "object",
    "properties": {"models": {"type": "array", "items": ref("Model")}},
    "required": ["models"],
    "additionalProperties": False,
}


def _all(_: Served) -> dict[str, Any]:
    return {"responses": {"200": answer("Every model.", "application/json", ref("ModelList"))}}


def _one(_: Served) -> dict[str, Any]:
    return {"responses": {"200": answer("The model.", "application/json", ref("Model")), **errors([404])}}


MODELS = (
    Operation("get", "/models", "models", "Models", "What is served here", _all),
    Operation("get", "/models/{name}", "model", "Models", "One model with its versions", _one),
)
