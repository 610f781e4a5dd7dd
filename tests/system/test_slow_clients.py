"""Clients that are silent, slow or gone: they hold no thread, and others do not wait for them."""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from test_connections import BODY, ECHO, answer, connected, head

pytestmark = pytest.mark.system

THREADS, SLOW_ONES = 8, 40

# What the others may cost, and what a run may take on a machine that has much else to do.
EXTRA_S = 0.05
SLOW_MACHINE = 4

WAYS = {
    "silent": b"",
    "half a request line": b"POST /pre",
    "half a head": head(len(BODY))[:-10],
    "a long half of a head": b"POST /predict HTTP/1.1\r\nX-A: " + b"a" * 9000,
    "no body": head(len(BODY)),
    "half a body": head(len(BODY)) + BODY[:5],
    "half a large body": head(10_000_000) + b"x" * 100_000,
    "half a chunk": head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"5\r\nhel",
    "an expectation": head(len(BODY), "Expect: 100-continue"),
    "a first request and half of a second": head(len(BODY)) + BODY + head(len(BODY)),
}


def seconds(ask: Callable[[], object]) -> float:
    """How long it takes, in the middle of some times."""
    took_s = []
    for _ in range(15):
        began = time.monotonic()
        ask()
        took_s.append(time.monotonic() - began)
    return statistics.median(took_s)


def kept(server) -> http.client.HTTPConnection:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return http.client.HTTPConnection(host, int(port), timeout=20)


def test_others_are_answered_as_soon_as_ever_beside_clients_that_are_silent_or_send_half_a_request(start):
    server = start(THREADS=THREADS, MAX_BATCH_SIZE=4)
    asker = kept(server)

    def predict() -> None:
        asker.request("POST", "/predict", BODY, {"Content-Type": "application/json"})
        response = asker.getresponse()
        assert (response.status, b"5.0" in response.read()) == (200, True)

    def live() -> None:
        with connected(server) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer(connection).status == 200

    unloaded_s = {ask: seconds(ask) for ask in (predict, live)}
    for way, sent in WAYS.items():
        with ExitStack() as stack:
            for _ in range(SLOW_ONES):
                stack.enter_context(connected(server)).sendall(sent)
            for pause_s in (0.0, 0.7):  # some may have been given a thread meanwhile
                time.sleep(pause_s)
                for ask, before_s in unloaded_s.items():
                    assert seconds(ask) < (before_s + EXTRA_S) * SLOW_MACHINE, way
    asker.close()


def test_a_client_that_sends_a_byte_now_and_then_gains_no_time(start):
    server = start(REQUEST_TIMEOUT_MS=1500, GRACEFUL_TIMEOUT_S=4)
    for sent in (
        head(len(BODY)) + BODY,
        head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"5\r\n",
    ):
        with connected(server) as connection:
            began = time.monotonic()
            connection.setblocking(False)
            data = b""
            for byte in sent * 100:
                try:
                    data += connection.recv(1000)
                    break
                except BlockingIOError:
                    connection.send(bytes([byte]))
                    time.sleep(0.1)
            assert data[:13] in (b"HTTP/1.1 408 ", b"HTTP/1.1 400 ")
            assert 1 < time.monotonic() - began < 1.5 * SLOW_MACHINE


def test_requests_whose_rest_comes_late_are_answered_however_many_they_are(start):
    server = start(THREADS=THREADS, MAX_BATCH_SIZE=4)
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    with ExitStack() as stack:
        clients = []
        for number in range(3 * THREADS):
            whole = head(len(BODY)) + BODY
            if number % 2:
                whole = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + chunks
            connection = stack.enter_context(connected(server))
            connection.sendall(whole[:-9])
            clients.append((connection, whole[-9:]))
        time.sleep(1.0)
        assert server.predict([ECHO, 3]).json()["predictions"] == [3]
        for connection, rest in clients:
            connection.sendall(rest)
        for connection, _ in clients:
            response = answer(connection)
            assert (response.status, b"5.0" in response.read()) == (200, True)


def test_many_clients_that_do_not_read_long_answers_hold_no_thread(start):
    server = start(app="long_answers:app", THREADS=THREADS)
    with ExitStack() as stack:
        readers = [stack.enter_context(connected(server)) for _ in range(SLOW_ONES)]
        for connection in readers:
            connection.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        began = time.monotonic()
        assert server.get("/livez").status_code == 200
        assert server.get("/stream").text == "0123456789"
        assert time.monotonic() - began < SLOW_MACHINE
        for connection in readers:
            response = answer(connection)
            assert len(response.read()) == 5_000_000


def test_an_app_may_stream_its_answer_and_fail_in_the_middle_of_it(start):
    server = start(app="long_answers:app")
    with connected(server) as connection:
        for _ in range(2):
            connection.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
            response = answer(connection)
            assert (response.headers["Transfer-Encoding"], response.read()) == ("chunked", b"0123456789")
        connection.sendall(b"GET /fails HTTP/1.1\r\nHost: x\r\n\r\n")
        response = answer(connection)
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        assert connection.recv(10) == b""
    assert "a request failed after its answer had begun" in server.text()
    with connected(server) as connection:
        connection.sendall(b"HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        first, _, rest = connection.recv(65536).partition(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 200")
        assert (rest or connection.recv(65536)).startswith(b"HTTP/1.1 200")
