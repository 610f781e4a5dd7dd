"""The model repository extension."""

from __future__ import annotations

from typing import Any

from service.http.keys import Access
from service.http.openapi.answers import answer, empty
from service.http.openapi.errors import ErrorForm, errors
from service.http.openapi.operation import Operation
from service.http.openapi.references import ref
from service.http.openapi.served import Served
from service.http.openapi.v2.infer import TAG
from service.http.v2.repository import STATES

# What reading a body can end with.
_BODY_STATUSES = {400, 413, 415}

# Where ADMIN_TOKEN is not set, all is 403.
_STATUSES = _BODY_STATUSES | {403, 404, 503, 504}

_ENTRY = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "version": {"type": "string"},
        "state": {
            "type": "string",
            "enum": sorted(set(STATES.values())),
            "description": "READY as well when it is loaded at its first request.",
        },
        "reason": {"type": "string", "description": "Why its last load failed; else empty."},
    },
    "required": ["name", "version", "state", "reason"],
    "additionalProperties": False,
}

SCHEMAS: dict[str, Any] = {
    "V2Index": {"type": "array", "items": _ENTRY},
    "V2IndexBody": {
        "type": "object",
        "properties": {"ready": {"type": "boolean", "description": "Only those that answer."}},
    },
    "V2LoadBody": {
        "type": "object",
        "properties": {
            "parameters": {
                "type": ["object", "null"],
                "properties": {
                    "version": {"type": ["string", "null"], "description": "Default: the newest in the repository."}
                },
                # Models are not taken over HTTP, nor is what describes them.
                "propertyNames": {"not": {"pattern": "^(file:|config$)"}},
            }
        },
    },
    "V2UnloadBody": {
        "type": "object",
        "properties": {
            "parameters": {
                "type": ["object", "null"],
                "properties": {"version": {"type": ["string", "null"], "description": "Default: all of them."}},
            }
        },
    },
}


def _optional(schema: str) -> dict[str, Any]:
    return {"required": False, "content": {"application/json": {"schema": ref(schema), "example": {}}}}


def _index(_: Served) -> dict[str, Any]:
    done = answer("Every version that is known.", "application/json", ref("V2Index"))
    return {
        "requestBody": _optional("V2IndexBody"),
        "responses": {"200": done, **errors(_BODY_STATUSES, ErrorForm.V2)},
    }


def _load(_: Served) -> dict[str, Any]:
    return {
        "description": "Switched off unless `ADMIN_TOKEN` is set.",
        "requestBody": _optional("V2LoadBody"),
        "responses": {"200": empty("It is loaded and answers."), **errors(_STATUSES | {500}, ErrorForm.V2)},
    }


def _unload(_: Served) -> dict[str, Any]:
    return {
        "description": "Switched off unless `ADMIN_TOKEN` is set.",
        "requestBody": _optional("V2UnloadBody"),
        "responses": {"200": empty("It is served no longer."), **errors(_STATUSES, ErrorForm.V2)},
    }


_MODEL = "/v2/repository/models/{name}"

REPOSITORY = (
    Operation("post", "/v2/repository/index", "v2_index", TAG, "What is known", _index, form=ErrorForm.V2),
    Operation("post", f"{_MODEL}/load", "v2_load", TAG, "Load a model", _load, Access.ADMIN, ErrorForm.V2),
    Operation("post", f"{_MODEL}/unload", "v2_unload", TAG, "Unload a model", _unload, Access.ADMIN, ErrorForm.V2),
)
