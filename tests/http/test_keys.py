"""Who is let in, by what key, and what is open to everybody."""

from __future__ import annotations

import pytest
from served import as_handle, sums

from service.http.keys import Access, needs

KEYS = {"api_keys": "first-key,second-key", "metrics_key": "metrics-key", "admin_token": "admin-token"}
BODY = {"instances": [[1, 2]]}
INFERENCE = ["/predict", "/models/m/predict", "/models/m/versions/3/predict"]


class Untouched:
    """A body that must not be read."""

    def read(self, size=-1):
        raise AssertionError("the body was read")

    readline = readinto = read


@pytest.mark.parametrize("path", INFERENCE)
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer first-key"},
        {"Authorization": "bearer   second-key"},
        {"X-API-Key": "second-key"},
        {"Authorization": "Basic eDp5", "X-API-Key": "first-key"},
        {"Authorization": "Bearer of-something-else", "X-API-Key": "first-key"},
    ],
)
def test_a_key_opens_every_predict_route(served, path, headers):
    assert served(**KEYS).client.post(path, json=BODY, headers=headers).json["predictions"] == [3.0]


@pytest.mark.parametrize("path", INFERENCE)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong-key"},
        {"Authorization": "first-key"},
        {"Authorization": "Basic first-key"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer first-key,second-key"},
        {"X-API-Key": ""},
        {"X-API-Key": "metrics-key"},
        {"X-API-Key": "admin-token"},
        {"X-API-Key": "caf\u00e9-caf\u00e9"},
        {"X-API-Key": "x" * 100_000},
        {"Authorization": "Bearer " + "x" * 100_000},
    ],
    ids=lambda headers: ascii(headers)[:40],
)
def test_without_a_key_that_fits_nothing_is_read_and_nothing_is_told(served, path, headers, caplog):
    answer = served(**KEYS).client.post(
        path, content_type="application/json", headers=headers,
        environ_overrides={"wsgi.input": Untouched(), "CONTENT_LENGTH": "16000000"},
    )  # fmt: skip
    assert (answer.status_code, answer.content_type) == (401, "application/problem+json")
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "Bearer" in answer.json["detail"]
    assert "X-API-Key" in answer.json["detail"]
    for value in headers.values():
        told = value.removeprefix("Bearer ").removeprefix("Basic ")
        assert not told or told == "Bearer" or told not in answer.text + caplog.text


@pytest.mark.parametrize(
    "method, path",
    [("GET", "/healthz"), ("HEAD", "/livez"), ("GET", "/livez"), ("OPTIONS", "/predict"), ("OPTIONS", "/metrics")],
)
def test_probes_and_preflights_stay_open(served, method, path):
    assert served(**KEYS).client.open(path, method=method).status_code == 200


@pytest.mark.parametrize(
    "method, path, status", [("POST", "/nope", 404), ("GET", "/predict", 405), ("POST", "/livez", 405)]
)
def test_what_is_not_there_needs_no_key(served, method, path, status):
    assert served(**KEYS).client.open(path, method=method).status_code == status


def test_a_key_is_asked_for_before_anything_else_is_judged(served):
    server = served(**KEYS)
    assert server.client.post("/models/other/predict", json=BODY).status_code == 401
    server.runtime.begin_drain()
    assert server.predict([1]).status_code == 401


def test_metrics_need_their_own_key_when_there_is_one(served):
    client = served(**KEYS).client
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"X-API-Key": "first-key"}).status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer metrics-key"}).status_code == 200


def test_metrics_are_open_without_a_key_of_their_own(served):
    assert served(api_keys="first-key").client.get("/metrics").status_code == 200


def test_without_settings_everything_but_administration_is_open(served):
    server = with_admin_route(served())
    assert server.predict([1, 2]).status_code == 200
    answer = server.client.post("/admin-route", headers={"X-API-Key": "anything-at-all"})
    assert (answer.status_code, answer.json["title"]) == (403, "Switched off")
    assert "ADMIN_TOKEN" in answer.json["detail"]


def test_administration_takes_its_token_and_no_other_key(served):
    client = with_admin_route(served(**KEYS)).client
    assert client.post("/admin-route").status_code == 401
    assert client.post("/admin-route", headers={"X-API-Key": "first-key"}).status_code == 401
    assert client.post("/admin-route", headers={"Authorization": "Bearer admin-token"}).text == "done"


def with_admin_route(server):
    @needs(Access.ADMIN)
    def view():
        return "done"

    server.app.add_url_rule("/admin-route", "jitney.admin_route", view, methods=["POST"])
    return server


def test_refusals_are_counted_and_carry_a_request_id(served):
    server = served(api_keys="first-key")
    answer = server.predict([1])
    assert answer.json["request_id"] == answer.headers["X-Request-ID"]
    assert server.metric('http_requests_total{method="POST",route="/predict",status="401"}') == 1


def test_the_routes_of_an_app_around_jitney_need_no_key():
    from flask import Flask

    from service import Jitney, Settings

    app = Flask("host")
    app.add_url_rule("/own", view_func=lambda: "own", methods=["POST"])
    Jitney(app, Settings(api_keys="first-key", warmup=False), model_handle=as_handle(sums))
    assert app.test_client().post("/own").text == "own"
    assert app.test_client().post("/predict", json=BODY).status_code == 401
    app.extensions["jitney"].close()
