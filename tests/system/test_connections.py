"""What single clients can do to a server with their connections, and what they cannot."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from service.server.worker import STOP_UNFINISHED_S

pytestmark = pytest.mark.system

ECHO, DIE, SLEEP = 0, 2, 3
BODY = json.dumps({"instances": [[ECHO, 5]]}).encode()


def head(length: int, *more: str) -> bytes:
    lines = ["POST /predict HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@contextmanager
def connected(server) -> Iterator[socket.socket]:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        yield connection


def answer(connection: socket.socket) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response


def seconds_to_stop(server, number: signal.Signals = signal.SIGTERM) -> float:
    began = time.monotonic()
    assert server.stop(number) == 0
    return time.monotonic() - began


def test_clients_that_keep_their_side_open_after_the_last_answer_hold_nobody_up(start):
    server = start()
    with ExitStack() as stack:
        for _ in range(6):
            connection = stack.enter_context(connected(server))
            connection.sendall(head(len(BODY), "Connection: close") + BODY)
            assert answer(connection).status == 200
        began = time.monotonic()
        assert server.get("/livez").status_code == 200
        assert time.monotonic() - began < 1


def test_clients_that_say_nothing_hold_no_thread(start):
    server = start(THREADS=4, MAX_BATCH_SIZE=2)
    with ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(connected(server))
        began = time.monotonic()
        assert server.predict([ECHO, 1]).status_code == 200
        assert time.monotonic() - began < 2


# Far from the 35 s that requests which are served would be given, also on a machine that others use.
IN_TIME_S = 8.0


@pytest.mark.parametrize(
    "sent, within_s",
    [
        pytest.param(b"", IN_TIME_S, id="nothing"),
        pytest.param(head(len(BODY)) + BODY, IN_TIME_S, id="a whole request, kept alive"),
        # The rest of these is waited for.
        pytest.param(b"POST /pre", IN_TIME_S + STOP_UNFINISHED_S, id="half a request line"),
        pytest.param(head(100), IN_TIME_S + STOP_UNFINISHED_S, id="no body"),
        pytest.param(head(100) + b'{"instances"', IN_TIME_S + STOP_UNFINISHED_S, id="half a body"),
    ],
)
def test_a_server_stops_in_time_whatever_connection_is_open(start, sent, within_s):
    server = start()
    with connected(server) as connection:
        connection.sendall(sent)
        if sent.endswith(BODY):
            assert answer(connection).read().startswith(b'{"predictions":[5.0]')
        server.wait_until(lambda: server.get("/livez").status_code == 200)
        assert seconds_to_stop(server) < within_s


def test_requests_on_kept_connections_are_answered_or_closed_while_the_server_drains(start):
    server = start()
    with ExitStack() as stack:
        kept = [stack.enter_context(connected(server)) for _ in range(4)]
        for connection in kept:
            connection.sendall(head(len(BODY)) + BODY)
            assert answer(connection).read()
        pool = stack.enter_context(ThreadPoolExecutor(1))
        inside = pool.submit(server.predict, [SLEEP, 2500])
        server.wait_until(server.busy)
        server.process.send_signal(signal.SIGTERM)
        for connection, pause_s in zip(kept, (0.02, 0.1, 0.5, 0.5), strict=True):
            time.sleep(pause_s)
            began = time.monotonic()
            try:
                connection.sendall(head(len(BODY)) + BODY)
                status: int | None = answer(connection).status
            except (http.client.RemoteDisconnected, BrokenPipeError):
                status = None  # closed before the request was sent
            except ConnectionResetError:
                assert pause_s > 0.2, "a request that was sent in time was reset"
                status = None
            assert status in (503, None)
            assert time.monotonic() - began < 1
        assert inside.result().json()["predictions"] == [2500]
    assert server.process.wait(20) == 0


def test_a_half_sent_request_does_not_delay_the_replacement_of_a_dead_worker(start):
    server = start()
    with connected(server) as connection:
        connection.sendall(head(100) + b'{"instances"')
        assert server.predict([DIE, 0]).status_code == 503
        began = time.monotonic()
        server.wait_until(lambda: server.get("/healthz", timeout=1).status_code == 200)
        assert time.monotonic() - began < 5
    assert server.predict([ECHO, 2]).json()["predictions"] == [2]


def test_requests_that_were_handed_over_before_the_stop_are_served_even_if_they_had_to_wait_for_a_thread(start):
    server = start(THREADS=2, MAX_BATCH_SIZE=1)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(server.predict, [SLEEP, 300]) for _ in range(8)]
        server.wait_until(lambda: "ready" in server.text() and server.process.poll() is None)
        time.sleep(0.4)  # all have been handed over, two are being served
        server.process.send_signal(signal.SIGTERM)
        assert [future.result().status_code for future in answers] == [200] * 8
    assert server.process.wait(20) == 0


@pytest.mark.parametrize("path", ["/nope", "/predict"])
def test_an_answer_before_a_large_body_was_read_arrives_and_says_that_the_connection_closes(start, path):
    server = start(MAX_BODY_BYTES=1_000_000)
    host, port = server.url.removeprefix("http://").split(":")
    client = http.client.HTTPConnection(host, int(port), timeout=20)
    client.request("POST", path, b"x" * 5_000_000, {"Content-Type": "application/json"})
    response = client.getresponse()
    assert response.status in (404, 413)
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.headers["Connection"].lower() == "close"
    assert json.loads(response.read())["status"] == response.status
    client.close()
    assert server.predict([ECHO, 1]).status_code == 200


def test_a_connection_stays_usable_after_a_small_body_was_left_unread(start):
    server = start()
    with connected(server) as connection:
        for _ in range(3):
            connection.sendall(head(len(BODY)).replace(b"/predict", b"/nope") + BODY)
            response = answer(connection)
            assert (response.status, json.loads(response.read())["title"]) == (404, "Not Found")
        connection.sendall(head(len(BODY)) + BODY)
        assert answer(connection).status == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /livez HTTP/9.9\r\nHost: x\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nBad<Name: 1\r\n\r\n", 400),
        (head(5, "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (head(5, "Content-Length: 6") + b"12345", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (head(3).replace(b"Content-Length: 3", b"Transfer-Encoding: chunked") + b"zz\r\n", 400),
    ],
    ids=["version", "header name", "two lengths of a body", "two content lengths", "long line", "chunk size"],
)
def test_what_is_no_request_gets_a_problem_document_and_the_connection_closes(start, request_bytes, status):
    server = start()
    with connected(server) as connection:
        connection.sendall(request_bytes)
        response = answer(connection)
        body = response.read()
        assert response.status == status, body
        assert response.headers["Content-Type"] == "application/problem+json"
        assert json.loads(body)["status"] == status
        assert b"Bad<Name" not in body
        assert connection.recv(10) == b""
    assert server.predict([ECHO, 1]).status_code == 200


def test_an_app_in_a_wrapper_has_its_life_cycle_too(start, tmp_path):
    (tmp_path / "wrapped.py").write_text(
        "from scripted import app as inner\nfrom werkzeug.middleware.proxy_fix import ProxyFix\napp = ProxyFix(inner)\n"
    )
    server = start("--pythonpath", str(tmp_path), app="wrapped:app")
    assert server.predict([DIE, 0]).status_code == 503
    server.wait_until(lambda: server.get("/healthz", timeout=1).status_code == 200)
    assert server.text().count("Booting worker") == 2


def test_an_error_in_the_users_own_module_is_the_last_thing_that_is_said(start, tmp_path):
    (tmp_path / "boom.py").write_text("raise RuntimeError('my own bug')\n")
    server = start("--pythonpath", str(tmp_path), app="boom:app", wait=False)
    assert server.process.wait(30) == 3
    assert "my own bug" in server.text()
    assert "gunicorn_config" not in server.text()


def test_several_worker_processes_are_warned_about(start):
    server = start("--workers", "2")
    assert "2 worker processes: each loads a whole model" in server.text()
