"""Several worker processes and one model: rows of all share batches, and nobody's end is another one's."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import requests

from loaders.load import load_model

pytestmark = pytest.mark.system

ECHO, RAISE, EXIT, SLEEP = 0, 1, 2, 3
READS = 12
ONE = {"WEB_WORKERS": 2, "MODEL_SHARING": "one"}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def owner_pid(server) -> int:
    """The owner that was started last."""
    lines = [line for line in server.text().splitlines() if "owner starts with pid" in line]
    return int(lines[-1].rpartition("with pid ")[2].split('"')[0].split()[0])


def front_end_pids(server) -> list[int]:
    return [pid for pid in children(server.process.pid) if pid != owner_pid(server)]


def all_ready(server, told: int = 2) -> None:
    """Front ends were told of a model so often, and none of many probes in a row, over new connections, says no."""
    server.wait_until(
        lambda: (
            server.text().count("can be asked for at its owner") >= told
            and all(server.get("/healthz").status_code == 200 for _ in range(READS))
        )
    )


def served(start, app="scripted:app", **settings):
    server = start(app=app, wait=False, **{**ONE, "LOG_FORMAT": "text", **settings})
    all_ready(server)
    return server


def ask_many(server, bodies, threads=64):
    """The answers to `bodies`, asked by as many threads at a time over kept connections."""
    local = threading.local()

    def ask(body):
        if not hasattr(local, "session"):
            local.session = requests.Session()
        return local.session.post(server.url + "/predict", json=body, timeout=30)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(ask, bodies))


def samples(server, name: str) -> float:
    return server.metric(name)


def test_answers_are_right_and_batches_hold_rows_of_both_processes(start, demo_models):
    server = served(
        start, "service:create_app()", MODEL_PATH=demo_models / "digits", MODEL_FORMAT="", MAX_BATCH_LATENCY_MS=20
    )
    rows = np.random.default_rng(0).integers(0, 17, (600, 64))
    model = load_model(demo_models / "digits")
    expected = [int(one) for one in model.predict_batch(list(rows.astype(np.float64)))]
    model.close()
    answers = ask_many(server, [{"instances": [row.tolist()]} for row in rows])
    assert {answer.status_code for answer in answers} == {200}
    assert [answer.json()["predictions"][0] for answer in answers] == expected
    server.wait_until(lambda: samples(server, "inference_rows_total") == 600)
    batches = samples(server, "inference_batch_size_count")
    assert 600 / batches > 4, "rows of many connections share batches"
    # Neither process alone could know of all rows that a batch held.
    assert {server.metric("inference_rows_total") for _ in range(READS)} == {600}


def test_texts_are_tokenised_in_the_front_ends(start, demo_models):
    server = served(start, "service:create_app()", MODEL_PATH=demo_models / "sentiment", MODEL_FORMAT="")
    texts = [f"a {'wonderful' if number % 2 else 'terrible'} film, {'really ' * (number % 9)}" for number in range(128)]
    model = load_model(demo_models / "sentiment")
    encode = model.input.encode
    alone = [model.predict_batch([encode(text)])[0] for text in texts]
    model.close()
    answers = ask_many(server, [{"instances": [text]} for text in texts])
    assert {answer.status_code for answer in answers} == {200}
    for answer, scores in zip(answers, alone, strict=True):
        told = answer.json()["predictions"][0]
        assert told["label"] == ("negative", "positive")[int(np.argmax(scores))] or isinstance(told["label"], str)
        assert (
            abs(told["score"] - float(np.exp(scores - scores.max()).max() / np.exp(scores - scores.max()).sum())) < 1e-4
        )
    loaded = [Path(f"/proc/{pid}/maps").read_text() for pid in front_end_pids(server)]
    assert not any("libtorch" in maps for maps in loaded), "a front end needs the tokenizer alone"


def test_pictures_are_decoded_in_the_front_ends(start, demo_models):

    server = served(start, "service:create_app()", MODEL_PATH=demo_models / "imagenet", MODEL_FORMAT="")
    picture = _picture()
    answers = [
        requests.post(server.url + "/predict", data=picture, headers={"Content-Type": "image/png"}, timeout=30)
        for _ in range(6)
    ]
    assert {answer.status_code for answer in answers} == {200}
    assert len({str(answer.json()["predictions"]) for answer in answers}) == 1


def _picture() -> bytes:
    import io

    from PIL import Image

    sink = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (240, 320, 3), dtype=np.uint8)).save(sink, "PNG")
    return sink.getvalue()


def test_a_model_of_the_app_is_served_too(start, tmp_path):
    gate = tmp_path / "gate"
    server = served(start, "gated:app", GATE=gate)
    answers = ask_many(server, [{"instances": [[number, 0]]} for number in range(50)])
    assert [answer.json()["predictions"] for answer in answers] == [[float(number)] for number in range(50)]


def test_a_row_that_fails_costs_its_own_caller_the_answer(start):
    server = served(start)
    answers = ask_many(server, [{"instances": [[RAISE if number == 9 else ECHO, number]]} for number in range(40)])
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(500) == 1
    assert statuses[9] == 500
    assert answers[9].headers["Content-Type"].startswith("application/problem+json")
    assert all(answer.json()["predictions"] == [n] for n, answer in enumerate(answers) if n != 9)


def test_a_deadline_and_a_full_queue_are_told_as_ever(start):
    server = served(start, MAX_QUEUE_SIZE=4, MAX_INSTANCES=4, MAX_BATCH_SIZE=1)
    with ThreadPoolExecutor(12) as pool:
        slow = [pool.submit(server.post, {"instances": [[SLEEP, 500]], "timeout_ms": 300}) for _ in range(12)]
        statuses = [one.result().status_code for one in slow]
    assert set(statuses) <= {200, 429, 504}
    assert 504 in statuses
    assert 429 in statuses
    assert server.metric("inference_rejected_total") == sum(status != 200 for status in statuses)


def test_the_end_of_a_front_end_costs_its_own_requests_only(start):
    server = served(start)
    victim, other = front_end_pids(server)
    outcomes = _load_during(server, lambda: os.kill(victim, signal.SIGKILL))
    failed = [one for one in outcomes if one != 200]
    assert set(failed) <= {"connection"}, outcomes
    assert len(failed) <= 16, "each client lost at most the request that it had in that process"
    all_ready(server, told=3)
    assert len(front_end_pids(server)) == 2
    assert other in front_end_pids(server)
    assert server.text().count("owner starts with pid") == 1


def _load_during(server, act, clients=16) -> list[object]:
    """The statuses of what some clients ask for a while; in the middle of it `act()`."""
    outcomes: list[object] = []
    stop = threading.Event()

    def ask() -> None:
        with requests.Session() as session:
            while not stop.is_set():
                try:
                    body = {"instances": [[SLEEP, 5]]}
                    outcomes.append(session.post(server.url + "/predict", json=body, timeout=20).status_code)
                except requests.ConnectionError:
                    outcomes.append("connection")
                    session.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(0.7)
    act()
    time.sleep(1.5)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return outcomes


def test_the_end_of_the_owner_answers_everyone_within_a_second_and_the_service_comes_back(start):
    server = served(start)
    first = owner_pid(server)
    taken: list[float] = []

    def ask() -> tuple[int, str]:
        answer = server.post({"instances": [[SLEEP, 20_000]]})
        taken.append(time.monotonic())
        return answer.status_code, answer.headers["Content-Type"]

    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(ask) for _ in range(40)]
        server.wait_until(lambda: samples(server, "inference_preprocess_seconds_count") == 40)
        time.sleep(0.2)
        killed_at = time.monotonic()
        os.kill(first, signal.SIGKILL)
        outcomes = {one.result() for one in asked}
    assert outcomes == {(503, "application/problem+json")}
    assert max(taken) - killed_at < 1.0
    server.wait_until(lambda: owner_pid(server) != first)
    all_ready(server, told=4)
    assert server.predict([ECHO, 7]).json()["predictions"] == [7]


def test_a_model_that_ends_its_process_is_replaced(start):
    server = served(start)
    first = owner_pid(server)
    assert server.predict([EXIT, 0]).status_code == 503
    server.wait_until(lambda: owner_pid(server) != first)
    all_ready(server, told=4)
    assert server.predict([ECHO, 7]).json()["predictions"] == [7]


def test_a_stop_answers_what_was_accepted_and_leaves_nothing(start):
    server = served(start)
    pids = children(server.process.pid)
    assert len(pids) == 3
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(server.post, {"instances": [[SLEEP, 300 + number]]}) for number in range(20)]
        server.wait_until(lambda: samples(server, "inference_preprocess_seconds_count") == 20)
        assert server.stop() == 0
        assert {one.result().status_code for one in asked} == {200}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_quick_stop_ends_the_owner_too(start, number):
    server = served(start)
    pids = children(server.process.pid)
    began = time.monotonic()
    server.stop(number)
    assert time.monotonic() - began < 5
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_reload_makes_a_new_owner_and_refuses_nobody(start):
    server = served(start)
    first, old = owner_pid(server), front_end_pids(server)
    outcomes = _load_during(server, lambda: server.process.send_signal(signal.SIGHUP))
    # A connection that is closed while it is idle may meet the next request.
    assert set(outcomes) <= {200, "connection"}
    assert outcomes.count("connection") <= 16
    server.wait_until(lambda: not {first, *old} & set(children(server.process.pid)))
    all_ready(server, told=4)
    assert owner_pid(server) != first
    assert server.predict([ECHO, 7]).json()["predictions"] == [7]


def test_a_reload_of_a_model_that_cannot_be_loaded_keeps_the_old_owner(start, tmp_path):
    server = served(start)
    first = owner_pid(server)
    (tmp_path / "model.bin").write_bytes(b"die")
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: "could not be loaded" in server.text())
    server.wait_until(lambda: len(children(server.process.pid)) == 3)
    assert first in children(server.process.pid)
    assert server.predict([ECHO, 7]).json()["predictions"] == [7]
    (tmp_path / "model.bin").write_bytes(b"")
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: first not in children(server.process.pid))
    all_ready(server, told=4)


def test_a_model_that_cannot_be_loaded_at_the_start_ends_the_service(start, tmp_path):
    (tmp_path / "bad").write_bytes(b"die")
    server = start(wait=False, MODEL_PATH=tmp_path / "bad", **ONE)
    assert server.process.wait(60) == 3


def test_the_end_of_the_master_ends_all(start):
    server = served(start)
    pids = children(server.process.pid)
    server.process.kill()
    server.process.wait(5)
    give_up_at = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < give_up_at, "something goes on without a master"
        time.sleep(0.1)


def test_the_service_is_ready_when_its_owner_is(start):
    server = start(wait=False, LOAD_S=2, **ONE)
    server.wait_until(lambda: server.get("/livez").status_code == 200)
    health = server.get("/healthz")
    assert (health.status_code, health.json()["reasons"]) == (503, ["loading"])
    assert server.predict([ECHO, 1]).status_code == 503
    all_ready(server)
    pid = owner_pid(server)
    os.kill(pid, signal.SIGKILL)
    server.wait_until(lambda: server.get("/healthz").status_code == 503)
    assert "is being replaced" in server.get("/healthz").json()["reasons"][0]
    all_ready(server, told=4)


def test_models_are_not_loaded_over_http(start):
    server = served(start, ADMIN_TOKEN="a-secret-token")
    headers = {"Authorization": "Bearer a-secret-token"}
    answer = requests.post(server.url + "/v2/repository/models/scripted/load", headers=headers, json={}, timeout=10)
    assert answer.status_code == 403
    assert "MODEL_SHARING" in answer.json()["error"]


def test_with_one_process_nothing_of_it_runs(start):
    server = start(MODEL_SHARING="one", WEB_WORKERS=1, LOG_FORMAT="text")
    assert "MODEL_SHARING=one changes nothing" in server.text()
    assert len(children(server.process.pid)) == 1
