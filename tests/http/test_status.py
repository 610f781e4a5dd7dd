"""`/status.json` and the page at `/`: what they tell, who may read them, and when they are not there."""

from __future__ import annotations

import re
import time
from importlib.resources import files

import pytest
from flask import Flask
from served import GUARD_S, NOT_FINITE, POISON, Gate, Served, as_handle, sums

from loaders.handle import ModelHandle
from loaders.signature import EncodedText, TabularInput, TextInput
from service import Jitney, Settings, create_app
from service.http.status import ASSETS, PAGE

KEY = "a-key-for-the-numbers"


def status(server, **headers):
    answer = server.client.get("/status.json", headers=headers)
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    return answer.json


def wait_until(holds):
    give_up_at = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def test_what_happened_is_told(served):
    server = served(max_batch_size=4)
    assert server.predict([1], [2]).status_code == 200
    assert server.predict([3]).status_code == 200
    assert server.predict([NOT_FINITE]).status_code == 500
    assert server.predict(["x"]).status_code == 422
    wait_until(lambda: len(status(server)["recent_batches"]) == 3)
    told = status(server)
    assert told["health"] == server.client.get("/healthz").json | {
        "last_batch_age_s": told["health"]["last_batch_age_s"]
    }
    assert told["settings"]["max_batch_size"] == 4
    assert told["models"] == server.client.get("/models").json["models"]
    [totals] = told["totals"]
    assert (totals["model"], totals["version"]) == ("m", "3")
    assert totals["requests"] == {"succeeded": 2, "failed": 2}
    assert (totals["rows"], totals["batches"], totals["batch_sizes"]) == (4, 3, {"1": 2, "2": 1})
    assert totals["flushes"] == {"latency": 3}
    assert totals["errors"]["non_finite"] == 1
    assert totals["seconds"]["total"] >= sum(totals["seconds"][part] for part in ("prepare", "queue", "model"))
    assert told["latency"]["count"] == 2
    assert 0 < told["latency"]["p50_ms"] <= told["latency"]["p95_ms"] <= told["latency"]["p99_ms"]


def test_the_last_batches_are_told_on_the_clock_of_the_uptime(served):
    server = served()
    server.predict([1], [2])
    wait_until(lambda: status(server)["recent_batches"])
    told = status(server)
    [batch] = told["recent_batches"]
    assert (batch["batch_id"], batch["size"], batch["reason"], batch["runs"]) == (1, 2, "latency", 1)
    assert (batch["model"], batch["version"], batch["failed_rows"], batch["padding_share"]) == ("m", "3", 0, 0)
    assert 0 <= batch["started_at_s"] <= batch["started_at_s"] + batch["model_ms"] / 1000 <= told["uptime_s"]
    assert batch["longest_wait_ms"] >= 0


def test_padding_and_failed_rows_of_a_batch_are_told(served):
    spec = TextInput(encode=lambda text: EncodedText(tuple(text.encode())))
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="t", input=spec))
    server.predict("a", "abc")
    wait_until(lambda: status(server)["recent_batches"])
    told = status(server)
    assert told["recent_batches"][0]["padding_share"] == pytest.approx(2 / 6, abs=1e-4)
    assert (told["totals"][0]["tokens"], told["totals"][0]["padding_tokens"]) == (4, 2)

    server = served()
    server.predict([1], [POISON])
    wait_until(lambda: status(server)["recent_batches"])
    told = status(server)
    assert (told["recent_batches"][0]["failed_rows"], told["recent_batches"][0]["runs"]) == (1, 3)
    assert told["totals"][0]["retries"] == {"model": 1}


def test_totals_of_a_version_that_was_unloaded_stay(repository):
    server = repository("m/1", "m/2")
    server.predict([1], path="/models/m/versions/2/predict")
    wait_until(lambda: status(server)["recent_batches"])
    server.runtime.unload("m", "2")
    told = status(server)
    assert {(one["version"], one["rows"]) for one in told["totals"]} >= {("2", 1)}


def test_it_answers_while_the_model_is_loading_and_when_the_service_stops(served):
    gate = Gate()
    handle = ModelHandle.from_callable(gate, name="m", version="3", input=TabularInput(width=2))
    server = served(handle, warmup=True, ready=False)
    assert gate.started.wait(GUARD_S)
    assert status(server)["health"]["reasons"] == ["loading"]
    gate.release.set()
    assert server.runtime.batcher().wait_started(GUARD_S)
    assert status(server)["health"]["status"] == "ready"
    server.runtime.begin_drain()
    assert status(server)["health"]["reasons"] == ["draining"]


def test_nothing_of_what_clients_sent_is_told(served):
    server = served()
    sent = "somebodys-secret"
    server.client.post(f"/predict?{sent}", json={"instances": [[sent]], sent: 1}, headers={"X-Request-ID": sent})
    server.client.get(f"/models/{sent}")
    server.predict([POISON])
    text = server.client.get("/status.json").text
    assert sent not in text
    assert "/srv/secret" not in text


def test_the_numbers_need_the_key_of_the_metrics_and_the_page_has_none(served):
    server = served(metrics_key=KEY)
    refused = server.client.get("/status.json")
    assert (refused.status_code, refused.content_type) == (401, "application/problem+json")
    assert status(server, **{"X-API-Key": KEY})["health"]["status"] == "ready"
    assert server.client.get("/").status_code == 200
    assert served(api_keys=(KEY,)).client.get("/status.json").status_code == 200


def test_asking_for_them_is_counted_but_not_timed(served):
    server = served()
    status(server)
    assert server.metric('http_requests_total{method="GET",route="/status.json",status="200"}') == 1
    assert "http_request_duration_seconds_count" not in server.client.get("/metrics").text


def test_the_page_may_load_its_own_files_and_nothing_else(served):
    server = served()
    page = server.client.get("/")
    assert (page.status_code, page.content_type) == (200, "text/html; charset=utf-8")
    assert page.headers["Content-Security-Policy"] == server.client.get("/docs").headers["Content-Security-Policy"]
    named = re.findall(r'(?:src|href)="(?!data:|#)([^"]+)"', page.text)
    assert len(named) >= 3
    for name in named:
        # Relative, so that it is found under any prefix.
        assert not name.startswith(("/", "http"))
        assert server.client.get(f"/{name}").status_code == 200


@pytest.mark.parametrize("name", ASSETS)
def test_every_file_of_the_page_is_served_as_what_it_is(served, name):
    answer = served().client.get(f"/status/{name}")
    assert (answer.status_code, answer.mimetype) == (200, ASSETS[name])
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for imported in re.findall(r'from "\./([^"]+)"', answer.text):
        assert imported in ASSETS


def test_the_files_of_the_page_name_no_other_host_and_write_no_markup():
    pages = files("service.http").joinpath("pages")
    for name in (PAGE, *ASSETS):
        text = pages.joinpath(name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|\beval\(", text), name


@pytest.mark.parametrize("path", ["/", "/status.json", "/status/status.js"])
def test_with_the_setting_off_nothing_is_there(served, path):
    server = served(status_page=False)
    answer = server.client.get(path)
    assert (answer.status_code, answer.content_type) == (404, "application/problem+json")
    assert server.client.get("/healthz").status_code == 200


def test_other_methods_are_refused(served):
    answer = served().client.post("/")
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


@pytest.fixture
def extend():
    servers = []

    def make(app: Flask, **settings) -> Served:
        values = Settings(max_batch_latency_ms=0, warmup=False, **settings)
        Jitney(app, values, model_handle=as_handle(sums))
        servers.append(Served(app))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def own_page():
    return "our own"


def test_an_app_keeps_a_page_of_its_own_whether_it_was_there_first_or_not(extend):
    early, late = Flask("early"), Flask("late")
    early.add_url_rule("/", view_func=own_page)
    servers = [extend(early), extend(late)]
    late.add_url_rule("/", view_func=own_page)
    for server in servers:
        assert server.client.get("/").text == "our own"
        assert server.client.post("/").status_code == 405
        wait_until(lambda server=server: status(server)["health"]["model"])  # the first of these begins to load it
        assert status(server)["health"]["model"]["name"] == "m"


def test_an_app_without_a_page_of_its_own_shows_the_status(extend):
    app = Flask("host")
    app.register_error_handler(404, lambda error: ("lost", 404))
    client = extend(app).client
    page = client.get("/")
    assert (page.status_code, page.mimetype) == (200, "text/html")
    assert "X-Request-ID" in page.headers
    assert client.head("/").status_code == 200
    for answer in (client.post("/"), client.get("/nowhere"), client.get("/", environ_overrides={"PATH_INFO": "//"})):
        assert (answer.status_code, answer.text) == (404, "lost")


def test_an_app_without_one_shows_nothing_when_the_setting_is_off(extend):
    app = Flask("host")
    app.register_error_handler(404, lambda error: ("lost", 404))
    answer = extend(app, status_page=False).client.get("/")
    assert (answer.status_code, answer.text) == (404, "lost")


def test_the_setting_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("STATUS_PAGE", "false")
    assert create_app(model_handle=as_handle(sums)).test_client().get("/").status_code == 404
