"""More clients than threads: who waits, who is refused, and what probes see of it."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import requests

from tests.system.crowd import (
    BATCH,
    QUEUE,
    SLOW_MACHINE,
    THREADS,
    Client,
    fill,
    request,
    row,
    start_gated,
    values,
    waiting,
)

pytestmark = [
    pytest.mark.system,
    # Sockets that the server cuts at the very end of a test may complain when they are collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# What the project promises of probes.
PROBE_S = 0.2
PROBES = ["/livez", "/healthz", "/metrics", "/v2/health/live", "/v2/health/ready"]


def test_what_there_is_no_room_for_is_refused_at_once_and_all_the_rest_is_answered(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    with ExitStack() as stack:
        inside = fill(server, stack)
        took_s = []
        for value in range(3 * THREADS):
            began = time.monotonic()
            with Client(server) as client:
                client.send(request(row(value)))
                status, body, response = client.answer()
            took_s.append(time.monotonic() - began)
            assert status == 429
            assert int(response.headers["Retry-After"]) >= 1
            assert b"MAX_QUEUE_SIZE" in body
        assert sorted(took_s)[len(took_s) // 2] < 0.1 * SLOW_MACHINE
        gate.unlink()
        assert values(inside) == [float(value) for value in range(len(inside))]
        assert server.metric("inference_rejected_total") == 3 * THREADS
        assert waiting(server) == 0
        assert server.predict([7]).status_code == 200


def test_a_crowd_that_comes_all_at_once_is_answered_or_refused_and_every_request_is_counted(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    crowd = 3 * (THREADS + QUEUE)
    with ThreadPoolExecutor(crowd) as pool:
        answers = [pool.submit(server.predict, [value]) for value in range(crowd)]
        server.wait_until(lambda: sum(answer.done() for answer in answers) >= crowd - THREADS - QUEUE - BATCH)
        gate.unlink()
        outcomes = Counter(answer.result().status_code for answer in answers)
    assert outcomes.keys() == {200, 429}
    assert outcomes[200] >= QUEUE
    lines = server.get("/metrics").text.splitlines()
    counted = {
        status: sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("http_requests_total") and '"/predict"' in line and f'"{status}"' in line
        )
        for status in outcomes
    }
    assert counted == outcomes
    assert server.metric("inference_rows_total") == outcomes[200]
    assert server.metric("inference_rejected_total") == outcomes[429]


def test_probes_are_answered_in_time_whatever_waits(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    with ExitStack() as stack:
        inside = fill(server, stack)
        took_s = []
        for path, method in itertools.product(PROBES * 10, ("GET", "HEAD")):
            began = time.monotonic()
            answer = requests.request(method, server.url + path, timeout=10)
            took_s.append(time.monotonic() - began)
            assert answer.status_code == 200
        assert sorted(took_s)[len(took_s) // 2] < PROBE_S
        assert max(took_s) < PROBE_S * SLOW_MACHINE
        gate.unlink()
        assert len(values(inside)) == len(inside)


def test_probes_are_answered_while_others_are_refused_without_end(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    stop_at = time.monotonic() + 3

    def hammer() -> int:
        refused = 0
        with requests.Session() as session:
            while time.monotonic() < stop_at:
                assert session.post(f"{server.url}/predict", json={"instances": [[1]]}, timeout=10).status_code == 429
                refused += 1
        return refused

    with ExitStack() as stack:
        inside = fill(server, stack)
        pool = stack.enter_context(ThreadPoolExecutor(16))
        hammering = [pool.submit(hammer) for _ in range(16)]
        took_s = []
        while time.monotonic() < stop_at:
            began = time.monotonic()
            assert server.get("/livez").status_code == 200
            took_s.append(time.monotonic() - began)
        assert sum(future.result() for future in hammering) > 50
        assert sorted(took_s)[len(took_s) // 2] < PROBE_S
        gate.unlink()
        assert len(values(inside)) == len(inside)


def test_a_request_line_like_a_probes_does_not_jump_the_queue(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    with ExitStack() as stack:
        inside = fill(server, stack)
        assert server.get("/models/livez").status_code == 429
        with Client(server) as client:
            # Two requests in one piece: the first one's line decides over the first one alone.
            client.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + request(row(1)))
            assert [client.answer()[0]] == [200]
        with Client(server) as client:
            client.send(b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
            status, _, response = client.answer()
            assert (status, response.headers["Connection"]) == (200, "close")
        gate.unlink()
        assert len(values(inside)) == len(inside)


def test_pipelined_requests_are_judged_one_by_one_and_answered_in_order(start, gate):
    server = start_gated(start, gate)
    with Client(server) as client:
        probe = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
        client.send(request(row(1)) + probe + request(row(2)) + request(row(3))[:30])
        stream = client.socket.makefile("rb")
        bodies = []
        for _ in range(3):
            bodies.append(read_answer(stream))
        client.send(request(row(3))[30:])
        bodies.append(read_answer(stream))
        assert [body.get("predictions", body.get("status")) for body in bodies] == [[1.0], "live", [2.0], [3.0]]


def read_answer(stream) -> dict:
    assert b" 200 " in stream.readline()
    length = 0
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return json.loads(stream.read(length))


def test_a_connection_that_was_refused_is_of_use_again(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    with ExitStack() as stack:
        inside = fill(server, stack)
        client = stack.enter_context(Client(server))
        for _ in range(3):
            client.send(request(row(5)))
            assert client.answer()[0] == 429
        gate.unlink()
        assert len(values(inside)) == len(inside)
        client.send(request(row(5)))
        assert client.answer()[0] == 200


def test_a_refusal_does_not_wait_for_the_body_and_is_not_lost(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    with ExitStack() as stack:
        inside = fill(server, stack)
        held_back = [stack.enter_context(Client(server)) for _ in range(12)]
        for client in held_back:
            client.send(request(row(1))[:-5])
        began = time.monotonic()
        for client in held_back:
            status, _, response = client.answer()
            assert (status, response.headers["Connection"]) == (429, "close")
        assert time.monotonic() - began < 3
        large = stack.enter_context(Client(server))
        large.send(request(b" " * 3_000_000))
        assert large.answer()[0] == 429
        gate.unlink()
        assert len(values(inside)) == len(inside)


def test_the_deadline_of_a_request_that_waits_for_a_thread_runs_from_its_arrival(start, gate):
    gate.touch()
    server = start_gated(start, gate, REQUEST_TIMEOUT_MS=2000, GRACEFUL_TIMEOUT_S=4)
    with ExitStack() as stack:
        inside = fill(server, stack)
        began = time.monotonic()
        assert [client.answer()[0] for client in inside] == [504] * len(inside)
        assert time.monotonic() - began < 2 * 1.5
        gate.unlink()


def test_a_stop_in_the_middle_of_a_crowd_loses_nothing_that_was_accepted(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    with ExitStack() as stack:
        inside = fill(server, stack)
        late = stack.enter_context(Client(server))
        late.send(request(row(1)))
        assert late.answer()[0] == 429
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: "Handling signal" in server.text())
        time.sleep(0.1)
        began = time.monotonic()
        late.send(request(row(2)))
        assert late.answer()[0] == 503
        assert time.monotonic() - began < 1
        gate.unlink()
        assert values(inside) == [float(value) for value in range(len(inside))]
    assert server.process.wait(20) == 0
    assert "were still open" not in server.text()


def test_with_gunicorns_own_worker_the_service_still_works(start, gate):
    server = start("-k", "gthread", app="gated:app", MODEL_PATH="", MODEL_FORMAT="", GATE=gate)
    assert server.predict([4]).json()["predictions"] == [4.0]
    assert server.get("/livez").status_code == 200
