"""`GET /openapi.json`, and `GET /docs`: that document as a page, from files of this package alone."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, request

from service.http.json import json_response
from service.http.openapi.document import openapi
from service.http.page_files import page, page_file
from service.http.paths import EXACT
from service.runtime import Runtime

PAGE = "docs.html"

# By name, what the page loads from under its own path. Nothing else is served from there.
ASSETS = {
    "docs.css": "text/css",
    "docs.js": "text/javascript",
    "elements.js": "text/javascript",
    "operations.js": "text/javascript",
    "reference.js": "text/javascript",
    "schemas.js": "text/javascript",
    "try.js": "text/javascript",
    "answers.js": "text/javascript",
}


def register(blueprint: Blueprint) -> None:
    """Add the routes to the blueprint, before it is registered on an app."""
    blueprint.add_url_rule("/openapi.json", "openapi", _document, methods=["GET"], **EXACT)
    blueprint.add_url_rule("/docs", "docs", _page, methods=["GET"], **EXACT)
    for name in ASSETS:
        blueprint.add_url_rule(
            f"/docs/{name}", f"docs_{name.replace('.', '_')}", _asset, methods=["GET"], defaults={"name": name}, **EXACT
        )


def _document() -> Response:
    here: Runtime = current_app.extensions["jitney"]
    here.ensure_started()
    here.await_model_in_memory()
    # Of several models each takes something else: then the document speaks of all of them.
    model = here.model if len({known.name for known in here.known_models()}) == 1 else None
    response = json_response(
        openapi(
            model,
            settings=here.settings,
            sample=None if model is None else here.sample(model),
            base_path=request.script_root,
        )
    )
    # It changes when the model does.
    response.headers["Cache-Control"] = "no-cache"
    return response


def _page() -> Response:
    return page(PAGE)


def _asset(name: str) -> Response:
    return page_file(name, ASSETS[name])
