"""What is asked about the service itself: readiness, liveness, and its models."""

from __future__ import annotations

from flask import Response, current_app

from service.errors import NOT_SERVED, UnknownModel
from service.health import liveness, models, readiness
from service.http.blueprint import blueprint, runtime
from service.http.json import json_response
from service.http.paths import EXACT


@blueprint.get("/healthz", **EXACT)
def healthz() -> Response:
    """Readiness."""
    ready, body = readiness(runtime())
    return json_response(body, 200 if ready else 503)


@blueprint.get("/livez", **EXACT)
def livez() -> Response:
    """Liveness; asking for it starts nothing."""
    live, body = liveness(current_app.extensions["jitney"])
    return json_response(body, 200 if live else 503)


@blueprint.get("/models", **EXACT)
def models_route() -> Response:
    """What is served here."""
    return json_response({"models": models(runtime())})


@blueprint.get("/models/<name>", **EXACT)
def model_route(name: str) -> Response:
    """One model with its versions."""
    found = models(runtime(), name)
    if not found:
        raise UnknownModel(NOT_SERVED)
    return json_response(found[0])
