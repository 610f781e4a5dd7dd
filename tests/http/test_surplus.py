"""What the app does with requests that the HTTP server has no thread for, beyond one to refuse them with."""

from __future__ import annotations

import time

import pytest
from flask import Flask
from served import Served, as_handle, sums

from service import Jitney, Settings
from service.probe_paths import PROBE_PATHS
from service.wsgi_environ import ACCEPTED, AHEAD, ARRIVED_AT

SURPLUS = {AHEAD: 40, ACCEPTED: False}
INFERENCE = [
    "/predict",
    "/models/m/predict",
    "/models/m/versions/3/predict",
    "/v1/models/m:predict",
    "/v2/models/m/infer",
]


def rejected(server, reason: str) -> float:
    return server.metric(f'inference_rejected_total{{model="m",reason="{reason}",version="3"}}')


@pytest.mark.parametrize("path", INFERENCE)
def test_a_surplus_prediction_is_refused_in_the_queues_own_words_and_counted(served, path):
    server = served(max_queue_size=32)
    answer = server.client.post(path, data=b"{not even JSON", environ_overrides=SURPLUS)
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) >= 1
    told = answer.json.get("detail") or answer.json["error"]
    assert told.startswith("the queue holds 40 rows and has no room for 1 more: the limit is 32 (MAX_QUEUE_SIZE)")
    assert rejected(server, "queue_full") == 1


def test_the_body_of_a_surplus_request_is_not_read(served):
    class Body:
        def read(self, *_: object) -> bytes:
            raise AssertionError("somebody reads the body")

    environ = {**SURPLUS, "wsgi.input": Body(), "CONTENT_LENGTH": "100"}
    answer = served().client.post("/predict", content_type="application/json", environ_overrides=environ)
    assert answer.status_code == 429


@pytest.mark.parametrize("path", sorted(PROBE_PATHS))
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_probes_are_answered_on_a_thread_for_surplus_too(served, path, method):
    assert served().client.open(path, method=method, environ_overrides=SURPLUS).status_code == 200


@pytest.mark.parametrize("path", ["/models", "/models/livez", "/v2/models/m", "/v2/models/m/config", "/openapi.json"])
def test_what_only_looks_like_a_probe_or_could_take_long_is_refused_and_is_no_rejected_prediction(served, path):
    server = served()
    assert server.client.get(path, environ_overrides=SURPLUS).status_code == 429
    assert rejected(server, "queue_full") == 0


def test_a_surplus_request_for_a_model_that_is_not_there_is_told_that(served):
    assert served().client.post("/models/nope/predict", environ_overrides=SURPLUS).status_code == 404


def test_a_surplus_request_of_a_stopping_service_is_told_that_it_stops(served):
    server = served()
    server.runtime.begin_drain()
    assert server.client.post("/predict", environ_overrides=SURPLUS).status_code == 503
    assert (rejected(server, "draining"), rejected(server, "queue_full")) == (1, 0)


def test_a_surplus_request_without_a_key_is_told_that_first(served):
    server = served(api_keys="12345678")
    assert server.client.post("/predict", environ_overrides=SURPLUS).status_code == 401
    assert rejected(server, "queue_full") == 0


def test_an_apps_own_pages_hold_no_thread_that_others_need_to_be_refused():
    app = Flask("own")
    app.add_url_rule("/slow", view_func=lambda: "slow")
    Jitney(app, Settings(warmup=False), model_handle=as_handle(sums))
    server = Served(app)
    server.runtime.start()
    try:
        assert server.client.get("/slow", environ_overrides=SURPLUS).status_code == 429
        assert server.client.get("/slow").text == "slow"
    finally:
        server.close()


def test_a_deadline_runs_from_the_arrival_and_not_from_when_a_thread_took_the_request(served):
    server = served(request_timeout_ms=1000)
    body = {"instances": [[1.0]], "timeout_ms": 400}
    late = server.client.post("/predict", json=body, environ_overrides={ARRIVED_AT: time.monotonic() - 0.5})
    assert late.status_code == 504
    in_time = server.client.post("/predict", json=body, environ_overrides={ARRIVED_AT: time.monotonic()})
    assert in_time.status_code == 200
    assert rejected(server, "deadline") == 1


def test_a_request_that_has_waited_for_too_long_is_refused_unread(served):
    server = served(request_timeout_ms=1000)
    environ = {ARRIVED_AT: time.monotonic() - 1.5}
    answer = server.client.post("/predict", data=b"{not even JSON", environ_overrides=environ)
    assert (answer.status_code, answer.json["title"]) == (504, "Deadline exceeded")
    assert rejected(server, "deadline") == 1
