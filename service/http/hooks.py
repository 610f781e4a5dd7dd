"""What every answer carries: a request id, the model's version, and how long it took."""

from __future__ import annotations

import time

from flask import Flask, Response, g, request
from werkzeug.exceptions import MethodNotAllowed, NotFound

from service.http import problems
from service.http.paths import OwnPaths, is_ours
from service.http.request_id import request_id
from service.runtime import Runtime


class AnswerHeaders:
    """Adds the headers to the answers of Jitney's own routes, or of every route when the whole app is Jitney's.

    In an app that has pages of its own, it also answers what goes wrong at or under a path of Jitney's: the client of
    an API is not to get the app's page for people.
    `X-Model-Version` tells the version that answered, or else the default one; it is left out as long as that is not
    known, that is while a bundle is being read.
    """

    def __init__(self, runtime: Runtime, *, whole_app: bool) -> None:
        self._runtime = runtime
        self._whole_app = whole_app

    def register(self, app: Flask) -> None:
        """Run before and after each request of `app`."""
        self._own_paths = OwnPaths(app)
        app.before_request(self._before)
        app.after_request(self._after)

    def _before(self) -> Response | None:
        g.jitney_started_at = time.perf_counter()
        # Werkzeug takes every number of slashes at the front for one, whatever the map of URLs says.
        if request.environ.get("PATH_INFO", "").startswith("//") and self._is_ours():
            # Not raised: an app's own page for 404 would come before the handler of our blueprint.
            return problems.from_http_exception(NotFound())
        refusal = request.routing_exception
        if self._whole_app or not isinstance(refusal, NotFound | MethodNotAllowed):
            return None
        if not self._own_paths.include(request.environ.get("PATH_INFO", "")):
            return None
        g.jitney_refused = True
        return problems.from_http_exception(refusal)

    def _after(self, response: Response) -> Response:
        if not self._is_ours():
            return response
        headers = response.headers
        headers["X-Request-ID"] = request_id()
        version = self._version()
        if version is not None:
            headers["X-Model-Version"] = version
        headers["Server-Timing"] = _timing()
        return response

    def _version(self) -> str | None:
        """The version that answered, else the one that would."""
        if "jitney_model" in g:
            return str(g.jitney_model.version)
        return self._runtime.version_of((request.view_args or {}).get("name"))

    def _is_ours(self) -> bool:
        return is_ours(whole_app=self._whole_app)


def _timing() -> str:
    phases = [g.jitney_phases] if "jitney_phases" in g else []
    # A hook of the app that answered first has kept ours from running: then there is nothing to report.
    started_at = g.get("jitney_started_at", time.perf_counter())
    return ", ".join([*phases, f"total;dur={(time.perf_counter() - started_at) * 1000:.3f}"])
