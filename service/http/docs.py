"""`GET /openapi.json`, and `GET /docs`: that document as a page, from files of this package alone."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from flask import Blueprint, Response, current_app, request

from service.http.json import json_response
from service.http.openapi.document import openapi
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

# The page needs its own files, its own service, and previews of pictures that the reader chose; nothing else.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


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
    model = here.model
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
    response = _file(PAGE, "text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _asset(name: str) -> Response:
    return _file(name, f"{ASSETS[name]}; charset=utf-8")


def _file(name: str, content_type: str) -> Response:
    response = Response(_content(name), content_type=content_type)
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


@cache
def _content(name: str) -> bytes:
    """A file of the package, read once."""
    return files("service.http").joinpath("pages", name).read_bytes()
