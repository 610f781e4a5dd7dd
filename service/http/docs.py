"""`GET /openapi.json`, and `GET /docs`: that document as a page, from files of this package alone."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, request
from werkzeug.exceptions import HTTPException, NotFound

from loaders.handle import ModelHandle
from service.http.json import json_response
from service.http.openapi.document import OPERATIONS, openapi
from service.http.openapi.operation import Operation
from service.http.page_files import page, page_file
from service.http.paths import EXACT, OWN_ENDPOINTS
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
            operations=[one for one in OPERATIONS if not _is_hidden(one, model)],
        )
    )
    # It changes when the model does.
    response.headers["Cache-Control"] = "no-cache"
    return response


def _is_hidden(operation: Operation, model: ModelHandle | None) -> bool:
    """Whether a route of the app's own answers in the place of this one."""
    path = operation.path
    if model is not None:
        path = path.replace("{name}", model.name).replace("{version}", model.version)
    adapter = current_app.create_url_adapter(request)
    assert adapter is not None
    try:
        rule, _ = adapter.match(path, operation.method.upper(), return_rule=True)
    except NotFound:
        return False  # what answers has no rule, see `Hooks`
    except HTTPException:
        return True
    return not rule.endpoint.startswith(OWN_ENDPOINTS)


def _page() -> Response:
    return page(PAGE)


def _asset(name: str) -> Response:
    return page_file(name, ASSETS[name])
