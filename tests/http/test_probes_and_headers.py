"""Health, headers, clients that leave, and the life of a server seen from outside."""

from __future__ import annotations

import re
import socket
import threading

import pytest
from served import GUARD_S, Gate, sums

from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from loaders.signature import TabularInput

ROW = TabularInput(width=2)


def gated(gate: Gate) -> ModelHandle:
    """A model whose width is known, so that it is warmed up."""
    return ModelHandle.from_callable(gate, name="m", version="3", input=ROW)


def test_a_ready_server_reports_everything_that_is_promised(served):
    server = served()
    server.predict([1])
    answer = server.client.get("/healthz")
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    body = answer.json
    assert 0 <= body.pop("last_batch_age_s") < GUARD_S
    assert body == {
        "status": "ready",
        "reasons": [],
        "model": {"name": "m", "version": "3", "format": "callable", "device": "cpu"},
        "queue_depth": 0,
        "oldest_wait_ms": 0,
        "worker_alive": True,
        "effective_max_batch_size": 32,
    }


def test_before_the_first_batch_there_is_no_age_of_one(served):
    assert served().client.get("/healthz").json["last_batch_age_s"] is None


def test_during_the_load_the_server_is_live_but_not_ready_and_the_probe_does_not_wait(served):
    gate = Gate()
    server = served(gated(gate), warmup=True, ready=False)
    assert gate.started.wait(GUARD_S)
    health = server.client.get("/healthz")
    assert (health.status_code, health.json["reasons"]) == (503, ["loading"])
    assert health.json["worker_alive"] is True
    assert server.client.get("/livez").json == {"status": "live", "reasons": []}
    refused = server.predict([1, 2])
    assert (refused.status_code, refused.json["title"]) == (503, "Not ready")
    assert refused.headers["X-Model-Version"] == "3"
    gate.release.set()
    assert server.runtime.batcher().wait_started(GUARD_S)
    assert server.client.get("/healthz").status_code == 200


def test_a_probe_starts_a_server_without_start_up_hooks_but_does_not_wait_for_it(served):
    gate = Gate()
    server = served(gated(gate), warmup=True, start=False)
    assert server.client.get("/livez").status_code == 200
    assert server.client.get("/healthz").status_code == 503
    assert gate.started.wait(GUARD_S)
    gate.release.set()


def test_the_first_request_starts_a_server_without_start_up_hooks_and_is_answered(served):
    server = served(ModelHandle.from_callable(sums, name="m", input=ROW), start=False, warmup=True)
    assert server.predict([1, 2]).json["predictions"] == [3.0]
    assert server.client.get("/healthz").status_code == 200


def test_the_first_request_waits_until_a_model_in_memory_is_warm(served):
    gate = Gate()
    server = served(gated(gate), warmup=True, start=False)
    first = server.in_thread(lambda: server.predict([7, 0]))
    assert gate.started.wait(GUARD_S)
    gate.release.set()
    assert first().json["predictions"] == [7.0]


def test_a_draining_server_is_live_but_not_ready(served):
    server = served()
    server.runtime.begin_drain()
    health = server.client.get("/healthz")
    assert (health.status_code, health.json["reasons"]) == (503, ["draining"])
    assert server.client.get("/livez").status_code == 200


def test_a_closed_server_is_not_ready_and_does_not_start_again(served):
    server = served()
    server.close()
    assert server.predict([1]).status_code == 503
    assert server.client.get("/healthz").json["reasons"] == ["draining"]
    assert server.client.get("/livez").status_code == 200


def test_what_is_inside_when_a_drain_begins_is_answered(served):
    gate = Gate()
    server = served(gate)
    inside = server.in_thread(lambda: server.predict([1]))
    assert gate.started.wait(GUARD_S)
    server.runtime.begin_drain()
    gate.release.set()
    assert inside().json["predictions"] == [1.0]


def test_a_failed_load_is_live_and_says_why_without_a_directory(served, tmp_path):
    directory = tmp_path / "secret place"
    directory.mkdir()
    (directory / "broken.joblib").write_bytes(b"not a model")
    path = str(directory / "broken.joblib")
    server = served(None, ready=False, model_path=path, allow_pickle=True)
    assert server.runtime.batcher().wait_started(GUARD_S)
    health = server.client.get("/healthz")
    assert health.status_code == 503
    [reason] = health.json["reasons"]
    assert reason.startswith("the model could not be loaded: ")
    assert "broken" in reason
    assert "secret place" not in reason
    assert str(tmp_path) not in reason
    assert health.json["model"] is None
    assert server.client.get("/livez").status_code == 200
    refused = server.predict([1])
    assert (refused.status_code, refused.json["detail"]) == (503, "the model could not be loaded")


def test_a_dead_worker_is_neither_live_nor_ready(served):
    def die(rows):
        raise SystemExit

    server = served(die)
    assert server.predict([1]).status_code == 503
    for path in ("/healthz", "/livez"):
        answer = server.client.get(path)
        assert (answer.status_code, answer.json["reasons"]) == (503, ["the inference worker is dead"])
    assert server.client.get("/healthz").json["worker_alive"] is False


def test_probes_answer_while_the_model_is_busy_and_report_what_waits(served):
    gate = Gate()
    server = served(gate, max_batch_size=1)
    calls = [server.in_thread(lambda: server.predict([1])) for _ in range(3)]
    assert gate.started.wait(GUARD_S)
    depth = 0
    for _ in range(1000):
        depth = server.client.get("/healthz").json["queue_depth"]
        if depth == 2:
            break
        threading.Event().wait(0.005)
    health = server.client.get("/healthz")
    assert (health.status_code, depth) == (200, 2)
    assert health.json["oldest_wait_ms"] > 0
    assert server.client.get("/livez").status_code == 200
    assert server.metric('inference_queue_depth{model="m",version="3"}') == 2
    gate.release.set()
    assert [call().status_code for call in calls] == [200] * 3


def test_a_batch_that_runs_too_long_makes_the_server_neither_live_nor_ready(served):
    gate = Gate()
    server = served(gate, stall_limit_ms=0.001)
    call = server.in_thread(lambda: server.predict([1]))
    assert gate.started.wait(GUARD_S)
    for path in ("/healthz", "/livez"):
        answer = server.client.get(path)
        assert answer.status_code == 503
        assert "STALL_LIMIT_MS" in answer.json["reasons"][0]
    gate.release.set()
    assert call().status_code == 200
    assert server.client.get("/livez").status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/metrics"])
def test_probes_answer_head_without_a_body(served, path):
    answer = served().client.head(path)
    assert (answer.status_code, answer.data) == (200, b"")


ANSWERS = [
    ("GET", "/healthz", 200), ("GET", "/livez", 200), ("GET", "/metrics", 200), ("GET", "/predict", 405),
    ("GET", "/nowhere", 404), ("POST", "/predict", 415), ("OPTIONS", "/predict", 200),
]  # fmt: skip


@pytest.mark.parametrize("method, path, status", ANSWERS)
def test_every_answer_carries_id_version_and_timing(served, method, path, status):
    answer = served().client.open(path, method=method)
    assert answer.status_code == status
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["X-Request-ID"])
    assert answer.headers["X-Model-Version"] == "3"
    assert re.fullmatch(r"total;dur=[0-9.]+", answer.headers["Server-Timing"])
    assert "text/html" not in answer.content_type or method == "OPTIONS"


def test_a_prediction_tells_the_time_of_each_phase(served):
    timing = served().predict([1]).headers["Server-Timing"]
    assert re.fullmatch(r"preprocess;dur=[\d.]+, queue;dur=[\d.]+, model;dur=[\d.]+, total;dur=[\d.]+", timing)


def test_a_well_formed_request_id_is_taken_over_and_any_other_replaced(served):
    server = served()

    def id_for(asked: str) -> str:
        return server.client.get("/livez", headers={"X-Request-ID": asked}).headers["X-Request-ID"]

    for good in ("a", "A-1_2.3", "x" * 64):
        assert id_for(good) == good
    for bad in ("", "x" * 65, "a b", "<b>", "a;b", "é", "\uff11"):
        assert id_for(bad) != bad
    assert id_for("") != id_for("")


def test_the_version_is_left_out_while_nobody_knows_it(served):
    server = served(None, start=False, model_path="somewhere")
    assert "X-Model-Version" not in server.client.get("/livez").headers
    named = served(None, start=False, model_path="somewhere", model_version="7")
    assert named.client.get("/livez").headers["X-Model-Version"] == "7"


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        return listener.accept()[0], theirs


@pytest.mark.parametrize("pair", [tcp_pair, socket.socketpair])
def test_a_client_that_leaves_is_counted_and_its_rows_never_reach_the_model(served, pair):
    gate = Gate()
    server = served(gate, max_batch_size=1)
    busy = server.in_thread(lambda: server.predict([1]))
    assert gate.started.wait(GUARD_S)
    ours, theirs = pair()
    with ours:
        theirs.close()
        left = server.client.post(
            "/predict", json={"instances": [[2], [3]]}, environ_overrides={"gunicorn.socket": ours}
        )
    assert left.status_code == 499
    gate.release.set()
    assert busy().status_code == 200
    assert server.predict([4]).status_code == 200
    assert gate.seen == [1, 4]
    assert server.metric('http_requests_total{method="POST",route="/predict",status="499"}') == 1
    assert server.metric('inference_abandoned_total{model="m",version="3"}') == 2


class Watched:
    """A connection that tells when somebody looks at it."""

    def __init__(self, connection: socket.socket) -> None:
        self.looked = threading.Event()
        self._connection = connection

    def fileno(self) -> int:
        self.looked.set()
        return self._connection.fileno()


@pytest.mark.parametrize("sent_ahead", [b"", b"GET /livez HTTP/1.1\r\n\r\n"])
def test_a_client_that_stays_gets_its_answer_and_keeps_what_it_sent_ahead(served, sent_ahead):
    gate = Gate()
    server = served(gate)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent_ahead)
        watched = Watched(ours)
        call = server.in_thread(
            lambda: server.client.post(
                "/predict", json={"instances": [[2]]}, environ_overrides={"gunicorn.socket": watched}
            )
        )
        assert gate.started.wait(GUARD_S)
        assert watched.looked.wait(GUARD_S)
        gate.release.set()
        assert call().status_code == 200
        ours.setblocking(False)
        if sent_ahead:
            assert ours.recv(100) == sent_ahead


def test_a_connection_that_was_closed_on_this_side_is_gone_too(served):
    gate = Gate()
    server = served(gate)
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        left = server.client.post("/predict", json={"instances": [[2]]}, environ_overrides={"gunicorn.socket": ours})
    assert left.status_code == 499
    gate.release.set()


def test_a_model_of_pictures_without_a_decoder_is_not_ready_and_names_the_extra(served, monkeypatch):
    import sys

    from served import SMALL_PICTURE, mean_colour

    monkeypatch.delitem(sys.modules, "service.inputs.picture", raising=False)
    monkeypatch.setitem(sys.modules, "PIL", None)
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE))
    assert "jitney[images]" in server.client.get("/healthz").json["reasons"][0]


def test_a_failure_of_the_warm_up_is_a_failed_load(served):
    def broken(rows):
        raise ModelLoadError("no such operator")

    server = served(ModelHandle.from_callable(broken, name="m", input=ROW), warmup=True)
    assert "no such operator" in server.client.get("/healthz").json["reasons"][0]
