"""`GET /`: what the service does, live, as a page; and `GET /status.json`, the numbers on it."""

from __future__ import annotations

from flask import Flask, Response

from service.http.blueprint import runtime
from service.http.json import json_response
from service.http.keys import Access, needs
from service.http.page_files import page, page_file
from service.http.paths import BLUEPRINT, EXACT
from service.status import status

PAGE = "status.html"

# By name, what the page loads from under its own path. It shares how things look and are tried with the page at /docs.
ASSETS = {
    "docs.css": "text/css",
    "status.css": "text/css",
    "status.js": "text/javascript",
    "batch_timeline.js": "text/javascript",
    "charts.js": "text/javascript",
    "distributions.js": "text/javascript",
    "figures.js": "text/javascript",
    "history.js": "text/javascript",
    "models_table.js": "text/javascript",
    "poll.js": "text/javascript",
    "tiles.js": "text/javascript",
    "trial.js": "text/javascript",
    "answers.js": "text/javascript",
    "elements.js": "text/javascript",
    "reference.js": "text/javascript",
    "schemas.js": "text/javascript",
    "try.js": "text/javascript",
}


def register(app: Flask, *, whole_app: bool) -> None:
    """Add the routes to an app; not the page itself where the app is not Jitney's alone, see `Hooks`."""
    # Under the blueprint's name they have the headers and error answers of the other routes.
    if whole_app:
        app.add_url_rule("/", f"{BLUEPRINT}.status_page", status_page, methods=["GET"], **EXACT)
    app.add_url_rule("/status.json", f"{BLUEPRINT}.status", _status, methods=["GET"], **EXACT)
    for name in ASSETS:
        endpoint = f"{BLUEPRINT}.status_{name.replace('.', '_')}"
        app.add_url_rule(f"/status/{name}", endpoint, _asset, methods=["GET"], defaults={"name": name}, **EXACT)


def status_page() -> Response:
    """The page. There is no number in it, so it needs no key."""
    return page(PAGE)


# The same numbers stand there as at /metrics.
@needs(Access.METRICS)
def _status() -> Response:
    response = json_response(status(runtime()))
    response.headers["Cache-Control"] = "no-store"
    return response


def _asset(name: str) -> Response:
    return page_file(name, ASSETS[name])
