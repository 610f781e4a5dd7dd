"""The short way of a predict request: past Flask's own machinery, where nobody could tell the difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from flask import (
    Flask,
    Request,
    Response,
    appcontext_popped,
    appcontext_pushed,
    appcontext_tearing_down,
    request_finished,
    request_started,
    request_tearing_down,
)

from loaders.signature import InputSpec
from service.http.blueprint import warn_if_alone
from service.http.body import ReadCall, read_json
from service.http.compression import MIN_BYTES
from service.http.exchange import Exchange, exchange
from service.http.hooks import own_headers
from service.http.json import JSON, JsonResponse, to_json
from service.http.keys import Guard
from service.http.native import DEALT_WITH, PREDICT, answer_of, predict_route
from service.http.paths import OWN_ENDPOINTS
from service.http.read import known_length, read_whole
from service.http.request_log import log_answer
from service.http.state import state_in
from service.metrics.http import HttpMetrics
from service.runtime import Runtime
from service.settings import Settings
from service.wsgi_environ import AHEAD

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    WSGIApp = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]

_ENDPOINT = f"{OWN_ENDPOINTS}{predict_route.__name__}"

# Who listens to signals that are sent for each request: the dictionaries themselves, each of one signal.
_LISTENERS = [
    signal.receivers
    for signal in (
        request_started,
        request_finished,
        request_tearing_down,
        appcontext_pushed,
        appcontext_popped,
        appcontext_tearing_down,
    )
]

# What Flask itself does for each request: whoever has put something else there expects it to be called.
_STEPS = (
    "app_context",
    "create_url_adapter",
    "dispatch_request",
    "do_teardown_appcontext",
    "do_teardown_request",
    "ensure_sync",
    "finalize_request",
    "full_dispatch_request",
    "make_response",
    "preprocess_request",
    "process_response",
    "request_context",
)

# In the environ of a request whose context somebody wants to see, as a test does.
_CONTEXT_WANTED = "werkzeug.debug.preserve_context"


class Shortcut:
    """WSGI middleware around Flask that answers `POST /predict` with a JSON body by itself.

    Of what Flask does for such a request nothing shows in the answer. Where something might, Flask serves it: when the
    app has got hooks, listeners to signals, a view, a session or the like of its own, when the request has a query or
    an encoding, or its key does not fit. What goes wrong on the way, and an answer long enough to be compressed, are
    handed to Flask's view to finish, so that there is one place for each.

    *Thread:* any; it is made when everything of ours has been registered.
    """

    def __init__(self, app: Flask, runtime: Runtime, settings: Settings, metrics: HttpMetrics, guard: Guard) -> None:
        self._flask: WSGIApp = app.wsgi_app
        self._app = app
        self._runtime = runtime
        self._max_bytes = settings.max_body_bytes
        self._metrics = metrics
        self._guard = guard
        self._is_open = not settings.cors_origins and runtime.tracing is None
        self._session_interface = app.session_interface
        self._registered = [(kept, _copy(kept)) for kept in _hooks(app)]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        if environ["REQUEST_METHOD"] != "POST" or environ.get("PATH_INFO") != PREDICT or not self._may_answer(environ):
            return self._flask(environ, start_response)
        try:
            here = self._runtime
            if here.ensure_started():
                warn_if_alone(environ)
            body = exchange(environ, here, None, None, self._receive, _respond)
            headers = self._counted(environ, body) if len(body) < MIN_BYTES else None
        except Exception as error:
            environ[DEALT_WITH] = error
        else:
            if headers is not None:
                start_response("200 OK", headers)
                return [body]
            environ[DEALT_WITH] = JsonResponse(body, content_type=JSON)
        try:
            return self._flask(environ, start_response)
        finally:
            # Where a hook has come meanwhile and answered, it is there still: an error holds this frame, and the body.
            environ.pop(DEALT_WITH, None)

    def _may_answer(self, environ: WSGIEnvironment) -> bool:
        return (
            self._is_open
            and environ.get("CONTENT_TYPE") == JSON
            and not environ.get("QUERY_STRING")
            and "HTTP_CONTENT_ENCODING" not in environ
            and AHEAD not in environ
            and _CONTEXT_WANTED not in environ
            and known_length(environ, self._max_bytes) is not None
            and self._is_as_made()
            and self._guard.admits_to_predict(environ)
        )

    def _is_as_made(self) -> bool:
        """Whether nobody has added to the app what is to see each request."""
        app = self._app
        if any(_LISTENERS):
            return False
        for kept, then in self._registered:
            if kept != then:
                return False
        return (
            app.__dict__.keys().isdisjoint(_STEPS)
            and app.view_functions.get(_ENDPOINT) is predict_route
            and app.session_interface is self._session_interface
            and app.request_class is Request
            and app.response_class is Response
            and not app.config["TRUSTED_HOSTS"]
            and not app.config["SERVER_NAME"]
        )

    @staticmethod
    def _receive(environ: dict[str, Any], settings: Settings, _: InputSpec | None) -> ReadCall:
        incoming = read_json(read_whole(environ["wsgi.input"], int(environ["CONTENT_LENGTH"])), settings)
        state_in(environ).place_of = incoming.place_of
        return incoming

    def _counted(self, environ: WSGIEnvironment, body: bytes) -> list[tuple[str, str]]:
        """The headers of an answer, which is counted and logged with them."""
        state = state_in(environ)
        version = None if state.model is None else state.model.version
        headers = [("Content-Type", JSON), ("Content-Length", str(len(body))), *own_headers(environ, state, version)]
        self._metrics.count_answer("POST", PREDICT, 200, time.perf_counter() - state.started_at)
        log_answer(environ, state, method="POST", route=PREDICT, status=200, request_id=state.request_id(environ))
        return headers


def is_untouched(app: Flask) -> bool:
    """Whether nobody is to see the requests of an app to which nothing of ours has been added yet.

    What instruments Flask as a whole is there from the beginning: in a class that stands in Flask's place, or with
    functions in the place of its own.
    """
    steps = (*_STEPS, "wsgi_app")
    is_plain = all(_is_flasks_or_ours(getattr(type(app), step)) for step in steps)
    return is_plain and vars(app).keys().isdisjoint(steps) and not any(_hooks(app))


def _is_flasks_or_ours(function: Any) -> bool:
    """Told by where it was written, which a wrapper does not take over with its name."""
    return isinstance(function, FunctionType) and function.__globals__["__name__"].startswith(("flask.", "service."))


def _hooks(app: Flask) -> list[Any]:
    """Where Flask keeps the functions that it calls for each request."""
    return [
        app.before_request_funcs,
        app.after_request_funcs,
        app.teardown_request_funcs,
        app.teardown_appcontext_funcs,
        app.url_value_preprocessors,
    ]


def _copy(kept: Any) -> Any:
    return {scope: list(functions) for scope, functions in kept.items()} if isinstance(kept, dict) else list(kept)


def _respond(done: Exchange[ReadCall]) -> bytes:
    return to_json(answer_of(done))
