"""Jitney as an extension of an app that has a life of its own, and several apps in one process."""

from __future__ import annotations

import gzip

import pytest
from flask import Blueprint, Flask, abort, g, request
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_flask_exporter import PrometheusMetrics
from served import GUARD_S, Served, as_handle, sums

from service import Jitney, Settings, create_app

SETTINGS = Settings(max_batch_latency_ms=0, warmup=False)


@pytest.fixture
def host():
    """An app with a page, a 404 page and an error page of its own."""
    app = Flask("host")

    @app.get("/")
    def index():
        return "hello", 200, {"X-Request-ID": "the app's own"}

    @app.get("/fails")
    def fails():
        abort(418)

    @app.errorhandler(404)
    def lost(error):
        return "<h1>lost</h1>", 404

    @app.errorhandler(418)
    def teapot(error):
        return "<h1>short and stout</h1>", 418

    return app


@pytest.fixture
def extend():
    servers = []

    def make(app: Flask) -> Served:
        Jitney(app, SETTINGS, model_handle=as_handle(sums))
        servers.append(Served(app))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def test_an_existing_app_gets_all_the_routes(host, extend):
    server = extend(host)
    answer = server.predict([1, 2])
    assert answer.json["predictions"] == [3.0]
    assert set(answer.headers.keys()) >= {"X-Request-ID", "X-Model-Version", "Server-Timing"}
    for path in ("/healthz", "/livez", "/metrics"):
        probe = server.client.get(path)
        assert probe.status_code == 200
        assert set(probe.headers.keys()) >= {"X-Request-ID", "X-Model-Version", "Server-Timing"}
    assert server.predict([True]).content_type == "application/problem+json"


def test_the_apps_own_answers_stay_as_they_are(host, extend):
    client = extend(host).client
    answer = client.get("/", headers={"X-Request-ID": "from-the-client"})
    assert (answer.text, answer.headers["X-Request-ID"]) == ("hello", "the app's own")
    assert not {"X-Model-Version", "Server-Timing"} & set(answer.headers.keys())
    assert (client.get("/nowhere").status_code, client.get("/nowhere").text) == (404, "<h1>lost</h1>")
    assert client.get("/fails").text == "<h1>short and stout</h1>"


def test_an_error_in_a_route_of_jitney_does_not_reach_the_apps_error_pages(host, extend):
    answer = extend(host).predict([1], path="/models/other/predict")
    assert (answer.status_code, answer.content_type) == (404, "application/problem+json")


def test_the_apps_own_crash_is_still_its_own(host, extend):
    host.add_url_rule("/crash", view_func=lambda: 1 / 0)
    host.config["PROPAGATE_EXCEPTIONS"] = True
    with pytest.raises(ZeroDivisionError):
        extend(host).client.get("/crash")


def test_the_apps_own_way_with_slashes_stays(host, extend):
    server = extend(host)
    assert server.client.get("/", environ_overrides={"PATH_INFO": "//"}).text == "hello"
    assert server.client.get("/", environ_overrides={"PATH_INFO": "//livez"}).status_code == 404


def test_what_the_app_keeps_in_g_is_not_touched(host, extend):
    @host.before_request
    def remember():
        g.request_id = "mine"

    host.add_url_rule("/mine", view_func=lambda: g.request_id)
    server = extend(host)
    assert server.client.get("/mine").text == "mine"
    assert server.predict([1]).headers["X-Request-ID"] != "mine"


@pytest.mark.parametrize("before", [True, False])
def test_a_hook_of_the_app_may_answer_first(host, extend, before):
    def refuse():
        return ("who are you?", 401) if request.path != "/" else None

    if before:
        host.before_request(refuse)
    server = extend(host)
    if not before:
        host.before_request(refuse)
    answer = server.predict([1])
    assert (answer.status_code, answer.text) == (401, "who are you?")
    assert set(answer.headers.keys()) >= {"X-Request-ID", "Server-Timing"}
    assert server.client.get("/").status_code == 200


def test_an_app_with_its_own_metrics_keeps_its_page_and_can_show_both(host, extend, caplog):
    own = CollectorRegistry()
    Counter("own_total", "of the app", registry=own).inc()
    host.add_url_rule("/metrics", view_func=lambda: generate_latest(own).decode())
    server = extend(host)
    assert "/metrics" in caplog.text
    assert server.predict([1]).status_code == 200
    assert server.client.get("/metrics").text.splitlines()[-1].startswith("own_")
    assert "inference_rows_total" not in server.client.get("/metrics").text

    own.register(server.runtime.metrics.registry)
    both = server.client.get("/metrics").text
    assert "own_total 1.0" in both
    assert 'inference_rows_total{model="m",version="3"} 1.0' in both


def test_an_app_that_uses_the_same_exporter_works_beside_it(host, extend):
    PrometheusMetrics(host, registry=CollectorRegistry())
    server = extend(host)
    assert server.predict([1]).status_code == 200
    assert "flask_http_request_total" in server.client.get("/metrics").text


def test_the_same_exporter_at_another_path_works_beside_it(host, extend):
    PrometheusMetrics(host, path="/own-metrics", registry=CollectorRegistry())
    server = extend(host)
    assert server.predict([1]).status_code == 200
    assert "inference_rows_total" in server.client.get("/metrics").text
    assert "flask_http_request_total" in server.client.get("/own-metrics").text


def test_init_app_takes_the_app_later():
    app = Flask("late")
    extension = Jitney(settings=SETTINGS, model_handle=as_handle(sums))
    assert "jitney" not in app.extensions
    extension.init_app(app)
    server = Served(app)
    assert server.predict([1, 2]).json["predictions"] == [3.0]
    server.close()


def test_two_apps_in_one_process_count_for_themselves():
    servers = [Served(create_app(SETTINGS, model_handle=as_handle(sums))) for _ in range(2)]
    for server in servers:
        server.runtime.start()
        assert server.runtime.batcher().wait_started(GUARD_S)
    servers[0].predict([1])
    rows = 'inference_rows_total{model="m",version="3"}'
    assert [server.metric(rows) for server in servers] == [1, 0]
    for server in servers:
        server.close()


def at(server: Served, method: str, path: str):
    # The client would take what follows two slashes for the name of a host.
    return server.client.open("/", method=method, environ_overrides={"PATH_INFO": path}, json={"instances": [[1]]})


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("POST", "/models/m//predict", 404),
        ("POST", "/models/m/predict/", 404),
        ("POST", "/predict/", 404),
        ("POST", "/predict/more", 404),
        ("POST", "//predict", 404),
        ("POST", "///models//m/predict", 404),
        ("GET", "/livez/", 404),
        ("GET", "/healthz//x", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/predict", 405),
        ("PUT", "/models/m/versions/3/predict", 405),
        ("POST", "/livez", 405),
        ("DELETE", "/metrics", 405),
        ("GET", "//predict", 404),
        ("PUT", "///models/m/predict", 404),
        ("POST", "//livez", 404),
        ("GET", "predict", 404),
        ("OPTIONS", "//predict", 404),
    ],
)
def test_what_goes_wrong_under_a_path_of_jitney_is_answered_as_an_api_answers(host, extend, method, path, status):
    host.register_error_handler(405, lambda error: ("<h1>not so</h1>", 405))
    server = extend(host)
    answer = at(server, method, path)
    assert (answer.status_code, answer.content_type) == (status, "application/problem+json")
    assert answer.json["request_id"] == answer.headers["X-Request-ID"]
    assert ("Allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize("path", ["/predictions", "/modelsx", "/livezz", "/a/predict", "/metricsx"])
def test_paths_beside_those_of_jitney_are_the_apps(host, extend, path):
    host.register_error_handler(405, lambda error: ("<h1>not so</h1>", 405))
    server = extend(host)
    assert at(server, "GET", path).text == "<h1>lost</h1>"
    assert at(server, "POST", "/").text == "<h1>not so</h1>"
    assert "X-Request-ID" not in at(server, "GET", path).headers


def test_the_apps_own_page_under_a_path_of_jitney_stays_with_its_redirect(host, extend):
    host.add_url_rule("/predict/help/", view_func=lambda: "help")
    server = extend(host)
    assert server.client.get("/predict/help/").text == "help"
    assert server.client.get("/predict/help").status_code == 308


@pytest.mark.parametrize(
    "rule, method, path, status",
    [
        ("/predict/help/", "POST", "/predict/help/", 405),
        ("/predict/help", "GET", "/predict/help/", 404),
        ("/predict/help", "POST", "/predict/help/more", 404),
        ("/predict/<int:number>", "GET", "/predict/one", 404),
        ("/predict", "PUT", "/predict", 405),
        ("/models/<int:number>/pages", "POST", "/models/3/pages", 405),
        ("/docs", "POST", "/docs", 405),
        ("/v1/models/<name>/card", "DELETE", "/v1/models/m/card", 405),
    ],
)
def test_at_a_rule_of_its_own_under_a_path_of_jitney_the_app_answers_in_its_own_form(
    host, extend, rule, method, path, status
):
    host.register_error_handler(405, lambda error: ("<h1>not so</h1>", 405))
    host.add_url_rule(rule, "mine", lambda **_: "mine")
    answer = at(extend(host), method, path)
    assert (answer.status_code, answer.content_type) == (status, "text/html; charset=utf-8")
    assert "X-Request-ID" not in answer.headers


@pytest.mark.parametrize(
    "rule, method, path",
    [
        ("/<path:page>", "POST", "/livez"),
        ("/<page>", "POST", "/models/m"),
        ("/<page>/predict", "POST", "/predict/more"),
        ("/predict/help", "POST", "/predict/more"),
    ],
)
def test_a_rule_of_the_app_that_is_wider_leaves_jitneys_paths_to_jitney(host, extend, rule, method, path):
    host.add_url_rule(rule, "mine", lambda **_: "mine")
    answer = at(extend(host), method, path)
    assert (answer.status_code in (404, 405), answer.content_type) == (True, "application/problem+json")


@pytest.mark.parametrize(
    "rule, methods, hidden",
    [
        ("/docs", ["GET"], {("/docs", "get")}),
        ("/models", ["GET", "POST"], {("/models", "get")}),
        ("/models/<name>", ["GET"], {("/models/{name}", "get")}),
        ("/predict", ["POST"], {("/predict", "post")}),
        ("/metrics", ["GET"], {("/metrics", "get")}),
        ("/healthz", ["GET"], {("/healthz", "get"), ("/healthz", "head")}),
        ("/", ["GET"], {("/", "get")}),
        ("/", ["POST"], {("/", "get")}),
        ("/v1/models/<name>:predict", ["POST"], {("/v1/models/{name}:predict", "post")}),
        ("/predict", ["GET"], set()),
        ("/<path:page>", ["GET", "POST"], set()),
    ],
)
def test_a_route_of_the_apps_that_answers_in_the_place_of_jitneys_hides_it_in_the_description(
    extend, rule, methods, hidden
):
    def told(app: Flask) -> set[tuple[str, str]]:
        paths = extend(app).client.get("/openapi.json").json["paths"]
        return {(path, method) for path, item in paths.items() for method in item}

    app = Flask("host")
    app.add_url_rule(rule, "mine", lambda **_: "mine", methods=methods)
    assert told(Flask("bare")) - told(app) == hidden


def test_a_second_init_app_is_refused_and_changes_nothing(host, extend):
    server = extend(host)
    with pytest.raises(RuntimeError, match="has Jitney already"):
        Jitney(host, SETTINGS, model_handle=as_handle(sums))
    assert host.extensions["jitney"] is server.runtime
    assert server.predict([1, 2]).json["predictions"] == [3.0]


def test_init_app_after_the_first_request_is_refused_and_changes_nothing(host):
    assert host.test_client().get("/").status_code == 200
    with pytest.raises(RuntimeError, match="before the first"):
        Jitney(host, SETTINGS, model_handle=as_handle(sums))
    assert "jitney" not in host.extensions
    assert host.test_client().get("/nowhere").text == "<h1>lost</h1>"


@pytest.mark.parametrize("read", [lambda: request.get_data(), lambda: request.get_json(silent=True)])
@pytest.mark.parametrize("path", ["/predict", "/v1/models/m:predict"])
def test_a_body_that_a_hook_of_the_app_has_read_is_answered_all_the_same(host, extend, read, path):
    host.before_request(lambda: read() and None)
    server = extend(host)
    body = b'{"instances": [[1, 2]]}'
    for headers, data in [({}, body), ({"Content-Encoding": "gzip"}, gzip.compress(body))]:
        if headers and path != "/predict":
            continue
        answer = server.client.post(path, data=data, content_type="application/json", headers=headers)
        assert answer.status_code == 200, answer.text


def test_a_body_that_a_hook_has_read_as_a_form_is_told_so(host, extend):
    host.before_request(lambda: request.form and None)
    server = extend(host)
    form = "application/x-www-form-urlencoded"
    answer = server.client.post("/v1/models/m:predict", data='{"instances": [[1]]}', content_type=form)
    assert answer.status_code == 400
    assert "another part of the application has read the body as a form" in answer.json["error"]


def test_a_blueprint_of_the_apps_own_that_has_our_name_is_told(host):
    host.register_blueprint(Blueprint("jitney", __name__))
    with pytest.raises(RuntimeError, match="has a blueprint of its own that is called 'jitney'"):
        Jitney(host, Settings(), model_handle=as_handle(sums))
