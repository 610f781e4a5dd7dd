"""Each request has one line in the log, in which nothing is of its sender's own making."""

from __future__ import annotations

import logging

import pytest
from flask import Flask
from served import POISON, sums

from loaders.handle import ModelHandle
from service import Jitney, Settings
from service.http.request_log import log_answer


class Kept(logging.Handler):
    """Keeps the records' fields."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[dict] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entries.append(record.fields)
        self.texts.append(record.getMessage() + str(record.fields))


@pytest.fixture
def logged():
    log = logging.getLogger("jitney.request")
    kept = Kept()
    log.addHandler(kept)
    log.setLevel(logging.INFO)
    yield kept
    log.removeHandler(kept)
    log.setLevel(logging.NOTSET)


def test_a_prediction_is_told_with_its_batches(served, logged):
    client = served(max_batch_size=4).client
    answer = client.post("/predict", json={"instances": [[1, 2]] * 6}, headers={"X-Request-ID": "mine-1"})
    assert answer.status_code == 200
    (entry,) = logged.entries
    assert {name: entry[name] for name in ("method", "route", "status", "rows", "request_id", "client")} == {
        "method": "POST",
        "route": "/predict",
        "status": 200,
        "rows": 6,
        "request_id": "mine-1",
        "client": "127.0.0.1",
    }
    assert sum(entry["batch_sizes"]) == 6
    assert len(entry["batch_sizes"]) == 2
    assert (entry["model"], entry["version"]) == (answer.json["model_name"], answer.json["model_version"])
    assert 0 <= entry["queue_ms"] <= entry["duration_ms"]
    assert 0 <= entry["model_ms"] <= entry["duration_ms"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/predict", {"instances": [[POISON, 0]]}, 500),
        ("/predict", {"instances": []}, 422),
        ("/models/none/predict", {"instances": [[1]]}, 404),
        ("/v1/models/none:predict", {"instances": [[1]]}, 404),
    ],
)
def test_a_request_that_fails_is_told_without_what_it_did_not_get_to(served, logged, path, body, status):
    assert served().client.post(path, json=body).status_code == status
    (entry,) = logged.entries
    assert (entry["status"], entry.get("rows"), entry.get("batch_sizes")) == (status, None, None)


def test_a_route_is_told_as_it_is_counted(served, logged):
    assert served().client.get("/v1/models/m").status_code == 200
    assert logged.entries[0]["route"] == "/v1/models/<name>"


def test_nothing_of_what_a_caller_sends_stands_in_the_log(served, logged):
    client = served().client
    client.get("/nothing-here-marker?query=marker")
    client.post(
        "/models/marker/predict?marker=1", json={"instances": [["marker"]]}, headers={"X-Request-ID": "a marker"}
    )
    client.open("/predict", method="MARKER")
    client.post("/predict", data="marker", headers={"X-Forwarded-For": "marker", "User-Agent": "marker"})
    assert len(logged.entries) == 4
    assert "marker" not in "".join(logged.texts).lower()
    assert [(entry["method"], entry["route"]) for entry in logged.entries] == [
        ("GET", "unmatched"),
        ("POST", "/models/<name>/predict"),
        ("other", "/predict"),
        ("POST", "/predict"),
    ]


def test_probes_are_told_at_the_level_debug_only(served, logged):
    client = served().client
    for path in ("/healthz", "/livez", "/metrics", "/status.json", "/v2/health/live", "/v2/health/ready"):
        assert client.get(path).status_code == 200
    assert logged.entries == []
    logging.getLogger("jitney.request").setLevel(logging.DEBUG)
    client.get("/healthz")
    assert [entry["route"] for entry in logged.entries] == ["/healthz"]


def test_nothing_is_looked_up_for_a_log_that_is_off(logged):
    class Untouchable:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} was looked up")

    logging.getLogger("jitney.request").setLevel(logging.WARNING)
    log_answer({}, Untouchable(), method="POST", route="/predict", status=200, request_id=None)
    assert logged.entries == []


def test_in_an_existing_app_its_own_pages_are_told_too(logged):
    app = Flask("yours")
    app.add_url_rule("/hello/<name>", "hello", lambda name: "hello")
    Jitney(app, Settings(), model_handle=ModelHandle.from_callable(sums, name="sums"))
    assert app.test_client().get("/hello/somebody").status_code == 200
    (entry,) = logged.entries
    assert (entry["route"], entry["status"]) == ("/hello/<name>", 200)


@pytest.mark.parametrize(
    "answered, asked, told",
    [("of.the-app", "of-the-caller", "of.the-app"), (None, "of-the-caller", "of-the-caller"), (None, "no good", None),
     ("no good", None, None), (None, None, None)],
)  # fmt: skip
def test_an_apps_own_page_is_told_under_the_id_of_its_answer_or_of_its_caller(logged, answered, asked, told):
    app = Flask("yours")
    app.add_url_rule("/hello", "hello", lambda: ("hello", {} if answered is None else {"X-Request-ID": answered}))
    Jitney(app, Settings(), model_handle=ModelHandle.from_callable(sums, name="sums"))
    answer = app.test_client().get("/hello", headers={} if asked is None else {"X-Request-ID": asked})
    assert answer.headers.get("X-Request-ID") == answered
    (entry,) = logged.entries
    assert entry.get("request_id") == told
