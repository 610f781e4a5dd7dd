"""What happens around the view of every request: one hook before it and one after, whatever there is to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flask import Flask, Request, Response
from werkzeug.exceptions import MethodNotAllowed, NotFound

from service.http import problems, surplus
from service.http.compression import compress
from service.http.cors import Cors
from service.http.keys import Guard
from service.http.paths import OWN_ENDPOINTS, OwnPaths
from service.http.request_log import log_answer
from service.http.state import RequestState, current_request, state_in
from service.metrics.http import HttpMetrics
from service.runtime import Runtime
from service.settings import Settings
from service.wsgi_environ import AHEAD


class Hooks:
    """Before a view: refusals, preflights and keys. After it: the headers of the answer, compression, metrics, the log.

    That holds for Jitney's own routes, or for every route when the whole app is Jitney's; requests are counted and
    logged in any case. In an app that has pages of its own, what goes wrong at or under a path of Jitney's is answered
    here: the client of an API is not to get the app's page for people. `OwnPaths` tells whose a path is. Where such an
    app has nothing at `/`, neither before nor after Jitney was added, `front_page` answers: a rule in the app's map
    could hide one that it adds later.

    `X-Model-Version` tells the version that answered, or else the default one; it is left out as long as that is not
    known, that is while a bundle is being read.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        metrics: HttpMetrics,
        guard: Guard,
        *,
        whole_app: bool,
        front_page: Callable[[], Response] | None = None,
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._guard = guard
        self._cors = Cors(settings) if settings.cors_origins else None
        self._whole_app = whole_app
        self._front_page = front_page

    def register(self, app: Flask) -> None:
        """Run around each request of `app`."""
        self._own_paths = OwnPaths(app)
        app.before_request(self._before)
        app.after_request(self._after)

    def _before(self) -> Response | None:
        now = current_request()
        environ = now.environ
        state = state_in(environ)
        if self._is_ours(now, state) and not _is_exact(environ):
            # Not raised: an app's own page for 404 would come before the handler of our blueprint.
            return problems.from_http_exception(NotFound())
        if now.routing_exception is not None:
            return self._refused(now, state)
        if _is_own_route(now):
            if self._cors is not None and (answer := self._cors.preflight(now)) is not None:
                return answer  # a preflight carries no key
            self._guard.check(now)
        if AHEAD in environ:
            return surplus.refuse(now, self._runtime, environ[AHEAD])
        return None

    def _refused(self, now: Request, state: RequestState) -> Response | None:
        refusal = now.routing_exception
        if self._whole_app or not isinstance(refusal, NotFound | MethodNotAllowed):
            return None
        if self._front_page is not None and _asks_for_front_page(now, refusal):
            state.is_refused = True
            return self._front_page()
        if not self._own_paths.include(now.environ.get("PATH_INFO", "")):
            return None
        state.is_refused = True
        return problems.from_http_exception(refusal if _is_exact(now.environ) else NotFound())

    def _after(self, response: Response) -> Response:
        now = current_request()
        state = state_in(now.environ)
        if self._is_ours(now, state):
            self._add_headers(now, state, response)
            if self._cors is not None:
                self._cors.add_headers(now, response)
            compress(response, now)
        method, route = self._metrics.count(now, response, state.started_at)
        log_answer(
            now.environ,
            state,
            method=method,
            route=route,
            status=response.status_code,
            request_id=response.headers.get("X-Request-ID"),
        )
        return response

    def _add_headers(self, now: Request, state: RequestState, response: Response) -> None:
        for name, value in own_headers(now.environ, state, self._version(now, state)):
            # Nobody has added these before, and looking for them first would cost more than all the rest.
            response.headers.add(name, value)

    def _version(self, now: Request, state: RequestState) -> str | None:
        """The version that answered, else the one that would."""
        if state.model is not None:
            return state.model.version
        arguments: dict[str, Any] = now.view_args or {}
        return self._runtime.version_of(arguments.get("name"))

    def _is_ours(self, now: Request, state: RequestState) -> bool:
        return self._whole_app or state.is_refused or _is_own_route(now)


def own_headers(environ: dict[str, Any], state: RequestState, version: str | None) -> list[tuple[str, str]]:
    """What each of our answers has beside its body's own headers. version: left out where it is not known."""
    took_ms = (time.perf_counter() - state.started_at) * 1000
    headers = [("X-Request-ID", state.request_id(environ))]
    if version is not None:
        headers.append(("X-Model-Version", version))
    headers.append(("Server-Timing", f"{state.phases}total;dur={took_ms:.3f}"))
    return headers


def _asks_for_front_page(now: Request, refusal: NotFound | MethodNotAllowed) -> bool:
    return now.environ.get("PATH_INFO") == "/" and now.method in ("GET", "HEAD") and isinstance(refusal, NotFound)


def _is_exact(environ: dict[str, Any]) -> bool:
    """Whether the path begins as the rule does: Werkzeug takes any number of slashes for one there, and none too."""
    path: str = environ.get("PATH_INFO", "")
    return path.startswith("/") and not path.startswith("//")


def _is_own_route(now: Request) -> bool:
    rule = now.url_rule
    return rule is not None and rule.endpoint.startswith(OWN_ENDPOINTS)
