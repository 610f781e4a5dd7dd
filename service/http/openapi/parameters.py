"""Parameters that operations have in common."""

from __future__ import annotations

from typing import Any

from service.http.openapi.served import Served

REQUEST_ID = {
    "name": "X-Request-ID",
    "in": "header",
    "description": "An id of the caller's own, sent back with the answer.",
    "schema": {"type": "string"},
}

_IN_PATH = {"name": "Name of the model.", "version": "Its version."}


def in_path(path: str, served: Served) -> list[dict[str, Any]]:
    """The parameters of `path`; the served model's own name and version are the examples."""
    return [_in_path(name, description, served) for name, description in _IN_PATH.items() if f"{{{name}}}" in path]


def _in_path(name: str, description: str, served: Served) -> dict[str, Any]:
    parameter = {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}
    return parameter if served.model is None else parameter | {"example": getattr(served.model, name)}
