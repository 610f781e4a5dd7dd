"""More clients than threads: who waits, who is refused, and what probes see of it."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import struct
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

pytestmark = [
    pytest.mark.system,
    # Sockets that the server cuts at the very end of a test may complain when they are collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# What the project promises of probes, and what a run may take on a machine that has much else to do.
PROBE_S = 0.2
SLOW_MACHINE = 5
THREADS, QUEUE, BATCH = 8, 12, 1
PROBES = ["/livez", "/healthz", "/metrics", "/v2/health/live", "/v2/health/ready"]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def start_gated(start, gate: Path, *args: str, **settings):
    values = {"THREADS": THREADS, "MAX_QUEUE_SIZE": QUEUE, "MAX_BATCH_SIZE": BATCH, "REQUEST_TIMEOUT_MS": 20_000}
    return start(*args, app="gated:app", MODEL_PATH="", MODEL_FORMAT="", GATE=gate, **(values | settings))


def request(body: bytes, *more: str, path: str = "/predict") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *more]).encode() + b"\r\n\r\n" + body


def row(value: int) -> bytes:
    return json.dumps({"instances": [[value]]}).encode()


class Client:
    """One connection of its own. `buffer_bytes`: how much its system takes that it does not read."""

    def __init__(self, server, buffer_bytes: int | None = None) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        self.socket.settimeout(30)
        if buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, bytes, http.client.HTTPResponse]:
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        return response.status, response.read(), response


def waiting(server) -> float:
    return server.metric("http_requests_waiting")


def fill(server, stack: ExitStack) -> list[Client]:
    """As many clients as there is room for, each with a row: the model has `BATCH` of them, the others wait.

    Of those that have a thread, the rows that are not in the model wait in the queue: they leave less room for
    requests without a thread.
    """
    clients = []
    for value in range(THREADS):
        clients.append(stack.enter_context(Client(server)))
        clients[-1].send(request(row(value)))
    in_queue = THREADS - BATCH
    server.wait_until(lambda: server.metric("inference_queue_depth") == in_queue)
    for value in range(THREADS, THREADS + QUEUE - in_queue):
        clients.append(stack.enter_context(Client(server)))
        clients[-1].send(request(row(value)))
    server.wait_until(lambda: waiting(server) == QUEUE - in_queue)
    return clients


def values(clients: list[Client]) -> list[float]:
    answers = [client.answer() for client in clients]
    assert {status for status, _, _ in answers} == {200}
    return [json.loads(body)["predictions"][0] for _, body, _ in answers]


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


def test_half_a_head_holds_no_thread_and_can_be_completed(start, gate):
    server = start_gated(start, gate, MAX_QUEUE_SIZE=1024)
    whole = request(row(9))
    with ExitStack() as stack:
        halves = [stack.enter_context(Client(server)) for _ in range(3 * THREADS)]
        for number, client in enumerate(halves):
            client.send(whole[: 5 + number])
        assert server.predict([1]).status_code == 200
        assert waiting(server) == 0
        for number, client in enumerate(halves):
            client.send(whole[5 + number : 40])
        assert server.predict([1]).status_code == 200
        for client in halves:
            client.send(whole[40:])
        assert values(halves) == [9.0] * len(halves)
        for client in halves:  # shorter than what was waited for before
            client.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.answer()[0] == 200


def test_a_client_that_does_not_send_its_request_in_time_is_cut_off(start, gate):
    server = start_gated(start, gate, REQUEST_TIMEOUT_MS=1000, GRACEFUL_TIMEOUT_S=4)
    with ExitStack() as stack:
        heads = [stack.enter_context(Client(server)) for _ in range(2)]
        bodies = [stack.enter_context(Client(server)) for _ in range(2 * THREADS)]
        began = time.monotonic()
        for client in heads:
            client.send(b"POST /v2/models/m/infer HTTP/1.1\r\nX-Request-ID: mine.1\r\n")
        for client in bodies:
            client.send(request(row(1))[:-5])
        statuses = [client.answer()[0] for client in bodies]
        # Those that have a thread by then find that there is no more of them, or that their time is up; the others need
        # none to be told.
        assert set(statuses) <= {400, 408, 504}
        for client in heads:
            client.socket.settimeout(10)
            status, body, response = client.answer()
            assert (status, response.headers["X-Request-ID"]) == (408, "mine.1")
            assert "REQUEST_TIMEOUT_MS" in json.loads(body)["error"]
            assert client.socket.recv(100) == b""
        assert time.monotonic() - began < 2 * SLOW_MACHINE
        server.wait_until(lambda: server.predict([1]).status_code == 200, guard_s=10)


def test_silent_connections_leave_room_for_new_ones(start, gate):
    server = start_gated(start, gate, "--worker-connections", "16")
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(Client(server))
        began = time.monotonic()
        assert server.get("/livez", timeout=60).status_code == 200
        assert time.monotonic() - began < 40
        assert server.predict([1]).status_code == 200


def test_clients_that_have_left_are_not_taken_for_such_that_wait(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    with ExitStack() as stack, ExitStack() as leaving:
        kept = [leaving.enter_context(Client(server)) for _ in range(2 * THREADS)]
        for client in kept:
            client.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.answer()[0] == 200
        inside = fill(server, stack)
        before = waiting(server)
        leaving.close()
        assert server.get("/livez").status_code == 200
        assert waiting(server) == before
        gate.unlink()
        assert len(values(inside)) == len(inside)


def test_clients_that_do_not_send_the_rest_of_a_long_head_cannot_keep_others_from_being_refused(start, gate):
    gate.touch()
    server = start_gated(start, gate)
    with ExitStack() as stack:
        inside = fill(server, stack)
        for _ in range(4):
            stack.enter_context(Client(server)).send(b"POST /predict HTTP/1.1\r\n" + b"X: " + b"a" * 9000)
        began = time.monotonic()
        assert server.get("/livez").status_code == 200
        assert time.monotonic() - began < 2
        assert server.predict([1]).status_code == 429
        assert time.monotonic() - began < 12
        gate.unlink()
        assert len(values(inside)) == len(inside)


def hog(stack: ExitStack, server) -> None:
    """Ask for more than any buffer holds, and read nothing of it."""
    client = stack.enter_context(Client(server, buffer_bytes=4096))
    client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 40)


def test_clients_that_do_not_read_cannot_keep_probes_from_being_answered(start, gate):
    gate.touch()
    server = start_gated(start, gate, BULK_BYTES=1_000_000)
    with ExitStack() as stack:
        inside = fill(server, stack)
        for _ in range(4):
            hog(stack, server)
        time.sleep(2)  # as long as their buffers take what is sent, others have their turns
        began = time.monotonic()
        assert server.get("/livez", timeout=20).status_code == 200
        assert time.monotonic() - began < 10
        gate.unlink()
        assert len(values(inside)) == len(inside)


def test_clients_that_do_not_read_cannot_keep_others_from_being_served(start, gate):
    server = start_gated(start, gate, THREADS=4, REQUEST_TIMEOUT_MS=2000, GRACEFUL_TIMEOUT_S=4, BULK_BYTES=1_000_000)
    with ExitStack() as stack:
        for _ in range(4):
            hog(stack, server)
        time.sleep(2)
        server.wait_until(lambda: server.predict([1]).status_code == 200, guard_s=10)


def test_the_deadline_of_a_request_that_waits_for_a_thread_runs_from_its_arrival(start, gate):
    gate.touch()
    server = start_gated(start, gate, REQUEST_TIMEOUT_MS=2000, GRACEFUL_TIMEOUT_S=4)
    with ExitStack() as stack:
        inside = fill(server, stack)
        began = time.monotonic()
        assert [client.answer()[0] for client in inside] == [504] * len(inside)
        assert time.monotonic() - began < 2 * 1.5
        gate.unlink()


def test_threads_memory_and_open_files_are_back_where_they_were_after_many_calls_of_which_some_were_aborted(
    start, gate
):
    server = start_gated(start, gate)

    def calls(number: int) -> None:
        for turn in range(50):
            with Client(server) as client:
                client.send(request(row(number)))
                if turn % 5 == 0:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    continue  # a reset
                assert client.answer()[0] in (200, 429)

    def storm() -> dict:
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(calls, range(10)))
        server.wait_until(lambda: waiting(server) == 0 and server.metric("inference_queue_depth") == 0)
        # The server reads on for a moment where it was the first to close.
        server.wait_until(lambda: server.get("/threads").json()["files"] <= idle_files + 2, guard_s=10)
        return server.get("/threads").json()

    idle_files = server.get("/threads").json()["files"]

    storm()  # all threads are made when they are first needed
    before, after = storm(), storm()
    assert abs(after["threads"] - before["threads"]) <= 1
    assert after["kib"] < before["kib"] * 1.1


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


def test_a_model_that_hangs_ends_its_process_when_that_is_wanted(start, gate):
    server = start_gated(start, gate, STALL_LIMIT_MS=500, EXIT_ON_STALL="true")
    gate.touch()
    with ExitStack() as stack:
        inside = fill(server, stack)
        began = time.monotonic()
        assert {client.answer()[0] for client in inside} == {503}
        assert time.monotonic() - began < 2 * SLOW_MACHINE
        server.wait_until(lambda: server.text().count("Booting worker") == 2 and server.get("/healthz").ok)
        gate.unlink()
        assert server.predict([6]).json()["predictions"] == [6.0]
    assert "EXIT_ON_STALL" in server.text()


def test_a_model_that_hangs_keeps_its_process_when_that_is_not_wanted(start, gate):
    server = start_gated(start, gate, STALL_LIMIT_MS=200)
    gate.touch()
    with Client(server) as client:
        client.send(request(row(3)))
        server.wait_until(lambda: server.get("/livez").status_code == 503)
        time.sleep(0.6)
        gate.unlink()
        assert client.answer()[0] == 200
    assert server.text().count("Booting worker") == 1
    os.kill(server.process.pid, 0)
