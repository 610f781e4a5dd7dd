"""The model repository extension: what there is, and loading and unloading it with ADMIN_TOKEN."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from loaders.errors import ModelError
from service.errors import Forbidden, InvalidInput, LoadFailed, UnknownModel
from service.health import public_text
from service.http.blueprint import blueprint, runtime
from service.http.charset import refuse_other_charset
from service.http.json import json_response
from service.http.json_body import parse_json
from service.http.keys import Access, needs
from service.http.paths import EXACT
from service.http.read import read_body
from service.inputs.nesting import refuse_if_deep
from service.models.keeper import KnownVersion, ModelState
from service.settings import Settings

# *Source:* the states of Triton's repository index. A version that is loaded when it is first asked for is ready.
STATES = {
    ModelState.LOADED: "READY",
    ModelState.AVAILABLE: "READY",
    ModelState.UNLOADED: "UNAVAILABLE",
    ModelState.FAILED: "UNAVAILABLE",
}


@blueprint.post("/v2/repository/index", **EXACT)
@needs(Access.OPEN)
def v2_index() -> Response:
    """Every version that is known, or with `{"ready": true}` those that answer."""
    here = runtime()
    only_ready = _document(here.settings).get("ready", False)
    if not isinstance(only_ready, bool):
        raise InvalidInput.at("ready", "must be true or false")
    entries = [_entry(known, here.settings) for known in here.known_models()]
    return json_response([entry for entry in entries if not only_ready or entry["state"] == "READY"])


@blueprint.post("/v2/repository/models/<name>/load", **EXACT)
@needs(Access.ADMIN)
def v2_load(name: str) -> Response:
    """Load the newest version, or the one that the parameter `version` names, and let it answer for the model."""
    here = runtime()
    parameters = _parameters(here.settings)
    if any(key.startswith("file:") for key in parameters):
        raise Forbidden("models are not taken over HTTP: put the version into MODEL_REPOSITORY and load it by name")
    if "config" in parameters:
        raise InvalidInput.at("parameters.config", "is not taken: a bundle describes its model in jitney.toml")
    try:
        here.load(name, _version(parameters))
    except ModelError as error:
        raise LoadFailed(public_text(str(error), here.settings)) from error
    return Response(status=200, content_type="application/json")


@blueprint.post("/v2/repository/models/<name>/unload", **EXACT)
@needs(Access.ADMIN)
def v2_unload(name: str) -> Response:
    """Serve a model, or the version that the parameter `version` names, no longer until it is loaded again."""
    here = runtime()
    if not here.unload(name, _version(_parameters(here.settings))):
        raise UnknownModel("no model of this name and version is served here")
    return Response(status=200, content_type="application/json")


def _entry(known: KnownVersion, settings: Settings) -> dict[str, Any]:
    reason = "" if known.reason is None else public_text(known.reason, settings)
    return {"name": known.name, "version": known.version, "state": STATES[known.state], "reason": reason}


def _parameters(settings: Settings) -> dict[str, Any]:
    parameters = _document(settings).get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidInput.at("parameters", "must be an object")
    return parameters


def _version(parameters: dict[str, Any]) -> str | None:
    version = parameters.get("version")
    if version is not None and not isinstance(version, str):
        raise InvalidInput.at("parameters.version", "must be a string")
    return version


def _document(settings: Settings) -> dict[str, Any]:
    """The body, which may be empty."""
    refuse_other_charset(request)
    data = read_body(request, settings)
    document = parse_json(data, settings.max_instances) if data else {}
    if not isinstance(document, dict):
        raise InvalidInput.at("", "the body must be a JSON object, or empty")
    refuse_if_deep(document)
    return document
