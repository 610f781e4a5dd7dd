"""Clients that hold connections and send or read too little keep nobody else from being answered."""

from __future__ import annotations

import json
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.system.crowd import SLOW_MACHINE, THREADS, Client, fill, request, row, start_gated, values, waiting

pytestmark = [
    pytest.mark.system,
    # Sockets that the server cuts at the very end of a test may complain when they are collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


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
