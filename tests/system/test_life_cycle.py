"""Start, faults and stop of a real gunicorn server."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

pytestmark = pytest.mark.system

ECHO, RAISE, DIE, SLEEP = 0, 1, 2, 3


def test_while_the_model_loads_the_service_is_live_and_not_ready(start):
    server = start(LOAD_S=3, wait=False)
    server.wait_until(lambda: server.get("/livez").status_code == 200)
    health = server.get("/healthz")
    assert (health.status_code, health.json()["reasons"]) == (503, ["loading"])
    refused = server.predict([ECHO, 1])
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) >= 1
    server.wait_ready()
    assert server.predict([ECHO, 1]).json()["predictions"] == [1]


def test_a_load_that_takes_longer_than_gunicorns_timeout_is_not_killed(start):
    server = start("--timeout", "2", LOAD_S=5)
    assert server.predict([ECHO, 1]).status_code == 200
    assert "TIMEOUT" not in server.text()
    assert server.text().count("Booting worker") == 1


def test_a_load_that_lets_nothing_else_run_is_not_killed_either(start):
    server = start("--timeout", "2", LOAD_S=1, HOLD_S=6)
    assert "WORKER TIMEOUT" not in server.text()
    assert server.text().count("Booting worker") == 1


def test_a_model_that_cannot_be_loaded_ends_the_server_with_a_reason(start):
    server = start(wait=False, MODEL_FORMAT="onnx", MODEL_PATH="/nonexistent/model.onnx")
    assert server.process.wait(60) == 3
    assert "could not be loaded" in server.text()
    assert "model.onnx" in server.text()
    assert "Traceback" not in server.text()


def test_however_many_processes_cannot_load_the_model_the_exit_status_is_the_same(start, tmp_path):
    (tmp_path / "model.bin").write_text("die")
    server = start(wait=False, WEB_WORKERS=3)
    assert server.process.wait(60) == 3
    assert "HaltServer" not in server.text()


def test_with_exit_on_load_error_off_the_service_stays_and_says_why(start):
    server = start(wait=False, MODEL_FORMAT="onnx", MODEL_PATH="/nonexistent/model.onnx", EXIT_ON_LOAD_ERROR="false")
    server.wait_until(lambda: "could not be loaded" in str(server.get("/healthz").json()["reasons"]))
    assert server.get("/healthz").status_code == 503
    assert "/nonexistent" not in server.get("/healthz").text
    assert server.get("/livez").status_code == 200
    assert server.predict([ECHO, 1]).status_code == 503


def test_a_wrong_setting_stops_the_start_and_is_named(start):
    server = start(wait=False, MAX_BATCH_SIZE="many")
    assert server.process.wait(60) == 1
    assert "MAX_BATCH_SIZE='many'" in server.text()
    assert "Traceback" not in server.text()


@pytest.mark.parametrize(
    ("args", "reason"),
    [(("--preload",), "preload_app cannot work"), (("-k", "gevent"), "gevent"), (("-k", "tornado"), "tornado")],
)
def test_a_start_that_cannot_work_is_refused_with_a_reason(start, args, reason):
    server = start(*args, wait=False)
    assert server.process.wait(60) != 0
    assert reason in server.text()


def test_the_master_never_loads_what_computes(start):
    server = start()
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: server.text().count("is ready") == 2)
    master = server.process.pid
    (worker, *_) = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    assert "numpy" in Path(f"/proc/{worker}/maps").read_text()
    for library in ("numpy", "torch", "onnxruntime", "libcuda"):
        assert library not in Path(f"/proc/{master}/maps").read_text()


def test_an_address_that_is_taken_is_named_at_once(start):
    first = start()
    taken = first.url.removeprefix("http://")
    second = start("--bind", taken, wait=False)
    began = time.monotonic()
    assert second.process.wait(30) == 1
    assert time.monotonic() - began < 5
    assert f"jitney: {taken} is in use" in second.text()
    assert "Traceback" not in second.text()


def test_too_few_threads_are_warned_about(start):
    server = start(THREADS=8)
    assert "THREADS" in server.text()


@pytest.mark.parametrize(("args", "warnings"), [((), 1), (("-k", "gthread", "--threads", "8"), 0)])
def test_a_gunicorn_that_serves_one_request_at_a_time_is_warned_about(start, tmp_path, args, warnings):
    own = tmp_path / "own.conf.py"
    own.write_text("import os\nbind = os.environ['BIND']\n")
    server = start("-c", str(own), *args)
    assert server.predict([ECHO, 1]).json()["predictions"] == [1]
    assert server.text().count("one request at a time") == warnings


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
def test_an_idle_server_stops_in_under_two_seconds(start, signals):
    server = start()
    assert server.predict([ECHO, 1]).status_code == 200
    began = time.monotonic()
    for number in signals:
        server.process.send_signal(number)
        time.sleep(0.01)
    assert server.process.wait(20) == 0
    assert time.monotonic() - began < 2
    assert "Traceback" not in server.text()
    assert "Exception ignored" not in server.text()


def test_sigint_in_the_middle_of_traffic_ends_the_server_at_once(start):
    server = start()
    stopped = threading.Event()

    def knock() -> None:
        while not stopped.is_set():
            try:
                server.predict([ECHO, 1], timeout=5)
            except requests.RequestException:
                return

    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(knock)
        server.wait_until(lambda: server.metric("inference_rows_total") > 100)
        server.process.send_signal(signal.SIGINT)
        try:
            assert server.process.wait(10) == 0
        finally:
            stopped.set()
    assert "SIGKILL" not in server.text()


def test_sigterm_under_load_loses_no_accepted_request(start):
    server = start()
    stopped = threading.Event()
    outcomes: list[tuple[int, bool]] = []
    cut: list[BaseException] = []

    def client(number: int) -> None:
        with requests.Session() as session:
            for turn in range(10_000):
                value = number * 10_000 + turn
                body = {"instances": [[SLEEP, 50], [ECHO, value]]}
                try:
                    answer = session.post(f"{server.url}/predict", json=body, timeout=20)
                except requests.ConnectionError as error:
                    if not stopped.is_set() or "refused" not in str(error).lower():
                        cut.append(error)
                    return
                right = answer.status_code != 200 or answer.json()["predictions"] == [50, value]
                outcomes.append((answer.status_code, right))

    with ThreadPoolExecutor(24) as pool:
        for number in range(24):
            pool.submit(client, number)
        server.wait_until(lambda: len(outcomes) > 200)
        stopped.set()
        server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert cut == []
    assert set(outcomes) <= {(200, True), (503, True)}
    assert sum(status == 200 for status, _ in outcomes) > 200


def test_after_sigterm_the_service_is_not_ready_while_it_answers_what_is_inside(start):
    server = start()
    with ThreadPoolExecutor(1) as pool, requests.Session() as kept:
        assert kept.get(f"{server.url}/healthz", timeout=10).status_code == 200
        inside = pool.submit(server.predict, [SLEEP, 1500])
        server.wait_until(lambda: server.get("/healthz").json()["queue_depth"] == 0 and server.busy())
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: "Handling signal" in server.text())
        health = kept.get(f"{server.url}/healthz", timeout=10)
        assert (health.status_code, health.json()["reasons"]) == (503, ["draining"])
        assert inside.result().json()["predictions"] == [1500]
    assert server.process.wait(20) == 0


def test_a_row_that_fails_costs_its_own_caller_an_error_and_nobody_else(start):
    server = start(MAX_BATCH_LATENCY_MS=50)
    with ThreadPoolExecutor(8) as pool:
        good = [pool.submit(server.predict, [ECHO, value]) for value in range(7)]
        bad = pool.submit(server.predict, [RAISE, 0])
        assert [future.result().json()["predictions"] for future in good] == [[value] for value in range(7)]
        answer = bad.result()
    assert answer.status_code == 500
    assert answer.json()["errors"][0]["loc"] == "instances[0]"
    assert "asked for it" not in answer.text
    server.wait_until(lambda: "ValueError: a row asked for it" in server.text(), guard_s=5)


def test_when_the_worker_thread_dies_its_callers_are_told_and_the_process_is_replaced(start):
    server = start()
    died = server.predict([DIE, 0])
    assert died.status_code == 503
    server.wait_until(lambda: server.get("/healthz").status_code == 200 and server.text().count("Booting worker") == 2)
    assert server.predict([ECHO, 3]).json()["predictions"] == [3]


def test_callers_of_a_hung_model_get_their_504_on_time_and_probes_still_answer(start):
    server = start(REQUEST_TIMEOUT_MS=800, STALL_LIMIT_MS=1500, GRACEFUL_TIMEOUT_S=4)
    with ThreadPoolExecutor(6) as pool:
        began = time.monotonic()
        stuck = [pool.submit(server.predict, [SLEEP, 6000]) for _ in range(6)]
        assert {future.result().status_code for future in stuck} == {504}
        assert time.monotonic() - began < 2.5
    assert server.get("/livez").status_code in (200, 503)
    server.wait_until(lambda: server.get("/livez").status_code == 503, guard_s=4)
    assert server.get("/healthz").status_code == 503
    server.wait_until(lambda: "a batch has been running for" in server.text(), guard_s=4)


def test_a_client_that_leaves_is_noticed_within_a_second(start):
    server = start(MAX_BATCH_SIZE=1)
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(server.predict, [SLEEP, 1500])
        server.wait_until(server.busy)
        with pytest.raises(requests.ReadTimeout):
            server.predict([ECHO, 2], timeout=0.2)
        began = time.monotonic()
        server.wait_until(lambda: server.metric("inference_abandoned_total") == 1, guard_s=2)
        assert time.monotonic() - began < 1.2
        assert busy.result().status_code == 200
    assert server.predict([ECHO, 3]).status_code == 200
    assert server.metric("inference_rows_total") == 2


def test_clients_that_connect_while_the_server_stops_are_answered_or_refused_and_never_cut(start):
    server = start()
    outcomes: list[str] = []

    def client() -> None:
        for _ in range(10_000):
            try:
                status = server.predict([SLEEP, 20]).status_code  # a connection of its own each time
            except requests.ConnectionError as error:
                outcomes.append("refused" if "refused" in str(error).lower() else f"cut: {error}")
                return
            outcomes.append(str(status))
            if status != 200:
                return

    with ThreadPoolExecutor(24) as pool:
        for _ in range(24):
            pool.submit(client)
        server.wait_until(lambda: len(outcomes) > 200)
        server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert set(outcomes) <= {"200", "503", "refused"}
    assert len([outcome for outcome in outcomes if outcome != "200"]) == 24


def test_a_replaced_worker_leaves_new_connections_to_its_successor(start):
    server = start()
    with ThreadPoolExecutor(1) as pool:
        inside = pool.submit(server.predict, [SLEEP, 1000])
        server.wait_until(server.busy)
        server.process.send_signal(signal.SIGHUP)
        assert inside.result().json()["predictions"] == [1000]
    server.wait_until(lambda: server.get("/healthz").status_code == 200 and server.text().count("Booting worker") == 2)
    assert server.predict([ECHO, 4]).json()["predictions"] == [4]
