"""A predict request past Flask's own machinery: the same answers, and only where nobody could tell the difference."""

from __future__ import annotations

import gc
import io
import json
import logging
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import (
    Flask,
    Request,
    Response,
    appcontext_popped,
    appcontext_pushed,
    appcontext_tearing_down,
    g,
    request,
    request_finished,
    request_started,
    request_tearing_down,
)
from flask.sessions import SecureCookieSessionInterface
from served import NOT_FINITE, POISON, Served, as_handle, sums
from werkzeug.test import EnvironBuilder, run_wsgi_app

from loaders.handle import ModelHandle
from service import Jitney, Settings
from service.http.native import DEALT_WITH
from service.http.shortcut import _STEPS, Shortcut

ROW = {"instances": [[1, 2]]}


class Way:
    """Tells which requests of an app were left to Flask."""

    def __init__(self, server: Served) -> None:
        self.app, self.left_to_flask = server.app, 0
        shortcut = server.app.wsgi_app
        assert isinstance(shortcut, Shortcut)
        flask = shortcut._flask

        def count(environ: Any, start_response: Any) -> Any:
            self.left_to_flask += 1
            return flask(environ, start_response)

        shortcut._flask = count


def with_hook(server: Served) -> Served:
    server.app.before_request(lambda: None)
    return server


def shown(answer: Any) -> tuple[int, list[tuple[str, str]], str]:
    """An answer without what differs from one request to the next."""
    headers = [
        (name, re.sub(r"[0-9.]+", "N", value) if name in ("Server-Timing", "Content-Length") else value)
        for name, value in answer.headers
    ]
    body = answer.get_data()
    return answer.status_code, headers, re.sub(r'"latency_ms":[0-9.]+', "", body.decode())


def counted(server: Served) -> list[str]:
    """What has been counted of requests for predictions, without how long they took."""
    server.runtime.batcher().call(lambda: None)  # the worker counts a batch when its callers have been answered
    lines = server.client.get("/metrics").text.splitlines()
    names = ("http_requests_total", "http_request_duration_seconds_count", "inference_errors_total")
    return [line for line in lines if line.startswith(names) and 'route="/metrics"' not in line]


@pytest.mark.parametrize(
    "body",
    [
        ROW,
        {"instances": [[1, 2], [3, 4]]},
        {"instances": [[2**64, 1.5]]},
        {"instances": [[1, 2]], "model_version": "3"},
        {"instances": [[1, 2]], "model_version": "4"},
        {"instances": [[1, 2]], "timeout_ms": 4000},
        {"instances": [[1, 2]], "parameters": {"x": 1}},
        {"instances": [[float(i)] * 4 for i in range(300)]},
        {"instances": []},
        {"instances": [[]]},
        {"instances": [[1, "x"], [1, None]]},
        {"instances": [[POISON, 2], [1, 2]]},
        {"instances": [[NOT_FINITE, 2]]},
        {"text": "hello"},
        {"nonsense": 1},
        [],
        b"{",
        b"",
        b'{"instances": [[' + b"1," * 3000 + b"1]]}",
    ],
    ids=lambda body: str(body)[:40],
)
def test_an_answer_is_the_same_whether_or_not_flask_has_served_it(served, body):
    data = {"data": body, "content_type": "application/json"} if isinstance(body, bytes) else {"json": body}
    headers = {"X-Request-ID": "one"}
    short, long = served(max_body_bytes=5000), with_hook(served(max_body_bytes=5000))
    answers = [server.client.post("/predict", headers=headers, **data) for server in (short, long)]
    assert shown(answers[0]) == shown(answers[1])
    assert counted(short) == counted(long)
    totals = [server.runtime.statistics(server.runtime.model).totals() for server in (short, long)]
    assert [(one.succeeded.count, one.failed.count) for one in totals] == [
        (int(answers[0].status_code == 200), int(answers[0].status_code != 200))
    ] * 2


def test_a_long_answer_is_compressed_either_way(served):
    model = ModelHandle.from_callable(lambda rows: [["x" * 3000] for _ in rows], name="m", version="3")
    headers = {"Accept-Encoding": "gzip", "X-Request-ID": "one"}
    short, long = served(model), with_hook(served(model))
    answers = [server.client.post("/predict", json=ROW, headers=headers) for server in (short, long)]
    assert [answer.headers.get("Content-Encoding") for answer in answers] == ["gzip", "gzip"]
    assert [name for name, _ in answers[0].headers] == [name for name, _ in answers[1].headers]


def test_flask_is_passed_by_for_a_plain_request_alone(served):
    server = served()
    way = Way(server)
    assert server.client.post("/predict", json=ROW).status_code == 200
    assert way.left_to_flask == 0
    others: list[Callable[[], Any]] = [
        lambda: server.client.post("/predict?explain=1", json=ROW),
        lambda: server.client.post("/models/m/predict", json=ROW),
        lambda: server.client.post("/predict", json=ROW, content_type="application/json; charset=utf-8"),
        lambda: server.client.post("/predict", json=ROW, headers={"Content-Encoding": "identity"}),
        lambda: server.client.get("/healthz"),
    ]
    for number, other in enumerate(others, start=1):
        assert other().status_code == 200
        assert way.left_to_flask == number


def on_request(app: Flask) -> None:
    app.before_request(lambda: None)


def after_request(app: Flask) -> None:
    app.after_request(lambda response: response)


def on_our_requests(app: Flask) -> None:
    app.before_request_funcs.setdefault("jitney", []).append(lambda: None)


def on_teardown(app: Flask) -> None:
    app.teardown_request(lambda _: None)


def on_teardown_of_context(app: Flask) -> None:
    app.teardown_appcontext(lambda _: None)


def on_url_values(app: Flask) -> None:
    app.url_value_preprocessor(lambda *_: None)


def view_of_its_own(app: Flask) -> None:
    inner = app.view_functions["jitney.predict_route"]
    app.view_functions["jitney.predict_route"] = lambda **arguments: inner(**arguments)


def session_of_its_own(app: Flask) -> None:
    app.session_interface = SecureCookieSessionInterface()


def request_of_its_own(app: Flask) -> None:
    app.request_class = type("Mine", (Request,), {})


def trusted_hosts(app: Flask) -> None:
    app.config["TRUSTED_HOSTS"] = ["localhost"]


def server_name(app: Flask) -> None:
    app.config["SERVER_NAME"] = "localhost"


def response_of_its_own(app: Flask) -> None:
    app.response_class = type("Mine", (Response,), {})


@pytest.mark.parametrize(
    "change",
    [
        on_request, after_request, on_our_requests, on_teardown, on_teardown_of_context, on_url_values, view_of_its_own,
        session_of_its_own, request_of_its_own, response_of_its_own, trusted_hosts, server_name,
    ],
)  # fmt: skip
def test_flask_serves_as_soon_as_the_app_has_something_that_would_see_the_request(served, change):
    server = served()
    way = Way(server)
    assert server.client.post("/predict", json=ROW).status_code == 200
    assert way.left_to_flask == 0
    change(server.app)
    assert server.client.post("/predict", json=ROW).status_code == 200
    assert way.left_to_flask == 1


@pytest.mark.parametrize("step", _STEPS)
def test_what_stands_in_the_place_of_a_step_of_flasks_is_called_for_as_long_as_it_does(served, step, monkeypatch):
    server, called = served(), []
    way, inner = Way(server), getattr(server.app, step)

    def seen(*arguments: Any, **more: Any) -> Any:
        called.append(step)
        return inner(*arguments, **more)

    assert server.client.post("/predict", json=ROW).status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(server.app, step, seen)
        assert server.client.post("/predict", json=ROW).status_code == 200
    assert server.client.post("/predict", json=ROW).status_code == 200
    assert (set(called), way.left_to_flask) == ({step}, 1)


INSTRUMENTED = """
import flask
from functools import wraps
from io import BytesIO
from wsgiref.util import setup_testing_defaults

seen = []

def by_class():
    class Instrumented(flask.Flask):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            self.before_request(lambda: seen.append(1))

    flask.Flask = Instrumented

def by_middleware():
    class Instrumented(flask.Flask):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            inner = self.wsgi_app
            self.wsgi_app = lambda *both: (seen.append(1), inner(*both))[1]

    flask.Flask = Instrumented

def by_function():
    inner = flask.Flask.wsgi_app

    @wraps(inner)
    def wsgi_app(*arguments):
        seen.append(1)
        return inner(*arguments)

    flask.Flask.wsgi_app = wsgi_app

{how}()
from loaders.handle import ModelHandle
from service import Settings, create_app

app = create_app(Settings(warmup=False), model_handle=ModelHandle.from_callable(lambda rows: [1.0], name="m"))
environ = {{"REQUEST_METHOD": "POST", "PATH_INFO": "/predict", "CONTENT_TYPE": "application/json"}}
body = b'{{"instances": [[1, 2]]}}'
environ |= {{"CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}}
setup_testing_defaults(environ)
list(app(environ, lambda status, _: seen.append(status)))
assert app.extensions["jitney"].close(5)
assert seen == [1, "200 OK"], seen
"""


@pytest.mark.parametrize("how", ["by_class", "by_middleware", "by_function"])
def test_what_instruments_flask_before_it_is_imported_here_sees_each_request(how):
    # In a process of its own: who has imported Flask keeps the class that it found.
    command = [sys.executable, "-c", INSTRUMENTED.format(how=how)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "signal",
    [
        request_started, request_finished, request_tearing_down,
        appcontext_pushed, appcontext_popped, appcontext_tearing_down,
    ],
    ids=lambda one: one.name,
)  # fmt: skip
def test_a_listener_hears_of_each_request_for_as_long_as_it_listens(served, signal):
    server, heard = served(), []
    way = Way(server)
    with signal.connected_to(lambda app, **_: heard.append(app), sender=server.app):
        assert server.client.post("/predict", json=ROW).status_code == 200
    assert server.client.post("/predict", json=ROW).status_code == 200
    assert (heard, way.left_to_flask) == ([server.app], 1)


def test_a_hook_may_answer_in_our_stead_and_see_the_request(served):
    server = served()

    @server.app.before_request
    def stop() -> Response | None:
        g.seen = request.get_json()
        return Response("stopped", 418) if g.seen == ROW else None

    assert server.client.post("/predict", json=ROW).status_code == 418
    assert server.client.post("/predict", json={"instances": [[1, 3]]}).get_json()["predictions"] == [4.0]


def test_a_test_client_that_keeps_the_context_finds_it(served):
    with served().app.test_client() as client:
        assert client.post("/predict", json=ROW).status_code == 200
        assert request.path == "/predict"


def test_keys_are_asked_for_either_way(served):
    server = served(api_keys="open-sesame")
    way = Way(server)
    assert server.client.post("/predict", json=ROW).status_code == 401
    assert way.left_to_flask == 1  # whose refusals all look alike
    for headers in ({"X-API-Key": "open-sesame"}, {"Authorization": "Bearer open-sesame"}):
        assert server.client.post("/predict", json=ROW, headers=headers).status_code == 200
    assert way.left_to_flask == 1


def test_an_app_that_answers_other_origins_is_left_to_flask(served):
    server = served(cors_origins="https://a.example")
    way = Way(server)
    answer = server.client.post("/predict", json=ROW, headers={"Origin": "https://a.example"})
    assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert way.left_to_flask == 1


def test_an_app_of_somebody_else_has_no_short_way():
    app = Flask("theirs")
    before = app.wsgi_app
    Jitney(app, Settings(), model_handle=as_handle(sums))
    assert app.wsgi_app == before


class Body(io.BytesIO):
    """A body that can be waited for to be let go of."""


def environ_of(document: object, **more: Any) -> dict[str, Any]:
    data = json.dumps(document).encode()
    environ = EnvironBuilder("/predict", method="POST", content_type="application/json").get_environ()
    return {**environ, "wsgi.input": Body(data), "CONTENT_LENGTH": str(len(data)), **more}


def answer_to(app: Flask, environ: dict[str, Any]) -> str:
    """The status of the answer to a request of which a client of Flask's would make another one."""
    statuses: list[str] = []
    b"".join(app(environ, lambda status, _: statuses.append(status)))
    return statuses[0]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("way", [lambda server: server, with_hook], ids=["short", "by Flask"])
@pytest.mark.parametrize(
    "document",
    [
        ROW,
        {"instances": [[1, "x"]]},
        {"instances": [[NOT_FINITE, 2]]},
        {"instances": [[1, 2]], "model_version": "4"},
        {"nonsense": 1},
        [],
    ],
    ids=str,
)
def test_a_body_is_let_go_of_with_its_answer_without_the_garbage_collector(served, document, way):
    server = way(served())
    environ = environ_of(document)
    body = weakref.ref(environ["wsgi.input"])
    run_wsgi_app(server.app, environ, buffered=True)
    del environ
    assert body() is None


def test_an_error_is_not_left_behind_where_a_new_hook_answers_for_it(served):
    def stop_the_next(_: list[Any]) -> list[Any]:
        server.app.before_request(lambda: Response("stopped", 418))
        raise ValueError

    server = served(stop_the_next)
    environ = environ_of(ROW)
    assert answer_to(server.app, environ).startswith("418")
    assert DEALT_WITH not in environ


@pytest.mark.parametrize("way", [lambda server: server, with_hook], ids=["short", "by Flask"])
def test_a_length_of_thousands_of_digits_is_refused_as_none(served, way):
    assert answer_to(way(served()).app, environ_of(ROW, CONTENT_LENGTH="1" * 5000)).startswith("400")


def test_a_request_without_a_path_is_left_to_flask(served):
    environ = environ_of(ROW)
    del environ["PATH_INFO"]  # as WSGI allows where it is empty
    assert answer_to(served().app, environ).startswith("404")


class Broken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError(record)


@pytest.mark.parametrize("way", [lambda server: server, with_hook], ids=["short", "by Flask"])
def test_a_log_that_raises_ends_no_request_without_an_answer(served, way, caplog):
    server, broken = way(served()), Broken()
    log = logging.getLogger("jitney.request")
    caplog.set_level(logging.INFO, log.name)
    log.addHandler(broken)
    try:
        answer = answer_to(server.app, environ_of(ROW))
    finally:
        log.removeHandler(broken)
    assert answer.startswith("500")
