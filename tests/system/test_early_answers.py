"""Answers that are there before the body is: they arrive, and what comes next on the connection is understood."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from test_connections import BODY, ECHO, answer, connected

pytestmark = pytest.mark.system

KEY = "X-API-Key: right-key"
KIB = 1024
SIZES = [1 * KIB, 60 * KIB, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 300 * KIB, 1024 * KIB, 5 * 1024 * KIB]

# What is asked for, and what is answered without a look at the body.
EARLY = {
    401: ("POST", "/predict", ["Content-Type: application/json", "Authorization: Bearer wrong-key"]),
    404: ("POST", "/nope", [KEY]),
    405: ("PUT", "/predict", [KEY]),
    413: ("POST", "/predict", ["Content-Type: application/json", KEY]),
    415: ("POST", "/predict", ["Content-Type: application/json", "Content-Encoding: br", KEY]),
}


def ask(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers]).encode() + b"\r\n\r\n"


GOOD = ask("POST", "/predict", KEY, "Content-Type: application/json", f"Content-Length: {len(BODY)}") + BODY


def send(connection: socket.socket, data: bytes) -> threading.Thread:
    """A client that sends everything before it reads must not be needed, nor stopped by a server that does not read."""

    def run() -> None:
        with suppress(OSError):  # the server has closed, which it may after its answer
            connection.sendall(data)

    thread = threading.Thread(target=run, name="sender")
    thread.start()
    return thread


def check_what_follows(connection: socket.socket, response: http.client.HTTPResponse) -> None:
    """Either the connection serves a next request, or it was said to close and ends without a reset."""
    assert json.loads(response.read())["status"] == response.status
    if (response.headers["Connection"] or "").lower() == "close":
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(10) == b""
    else:
        connection.sendall(GOOD)
        assert answer(connection).status == 200


@pytest.fixture
def server(start):
    return start(API_KEYS="right-key", MAX_BODY_BYTES=1000)


def test_an_answer_before_the_body_was_read_arrives_whatever_its_size(server):
    for status, (method, path, headers) in EARLY.items():
        for size in SIZES:
            with connected(server) as connection:
                head = ask(method, path, *headers, f"Content-Length: {size}")
                sender = send(connection, head + b"x" * size)
                response = answer(connection)
                assert response.status == status, size
                sender.join(20)
                check_what_follows(connection, response)
    assert server.get("/livez").status_code == 200


def test_a_chunked_body_that_was_not_read_is_left_behind_too(server):
    for status, (method, path, headers) in EARLY.items():
        for size in (10, 60 * KIB, 1024 * KIB):
            with connected(server) as connection:
                chunks = b"%x\r\n" % (size + 1000) + b"x" * (size + 1000) + b"\r\n0\r\n\r\n"
                sender = send(connection, ask(method, path, *headers, "Transfer-Encoding: chunked") + chunks)
                response = answer(connection)
                assert response.status == status, size
                sender.join(20)
                check_what_follows(connection, response)


def test_a_wrong_key_is_answered_while_the_body_is_still_on_its_way(server):
    with connected(server) as connection:
        connection.sendall(ask("POST", "/predict", "X-API-Key: wrong-key", "Content-Length: 900"))
        response = answer(connection)
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        connection.sendall(b"x" * 900)
        check_what_follows(connection, response)


@pytest.mark.parametrize(
    "value", [b"\xff" * 8, b"caf\xc3\xa9-caf\xc3\xa9", b"x" * 8000, b"\x01right-key", b"right-key\xa0"]
)
def test_a_key_that_is_no_text_is_a_wrong_key_or_no_request(server, value):
    for name in (b"X-API-Key: ", b"Authorization: Bearer "):
        with connected(server) as connection:
            head = ask("POST", "/predict", f"Content-Length: {len(BODY)}", "KEY").replace(b"KEY", name + value)
            connection.sendall(head + BODY)
            response = answer(connection)
            assert response.status in (400, 401, 431)
            assert value not in response.read()
    assert value.decode("latin-1") not in server.text()


def test_while_the_model_loads_a_body_is_not_waited_for(start):
    server = start(LOAD_S=20, wait=False, MAX_BODY_BYTES=10_000_000)
    server.wait_until(lambda: server.get("/livez").status_code == 200)
    for size in (1 * KIB, 300 * KIB, 5 * 1024 * KIB):
        with connected(server) as connection:
            head = ask("POST", "/predict", "Content-Type: application/json", f"Content-Length: {size}")
            sender = send(connection, head + b"x" * size)
            response = answer(connection)
            assert response.status == 503
            assert int(response.headers["Retry-After"]) >= 1
            sender.join(20)
            closes = (response.headers["Connection"] or "").lower() == "close"
            assert not (closes and size < 64 * KIB)
            response.read()
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""


def test_packed_bodies_are_opened_by_the_real_server_and_bombs_are_not(start):
    server = start(MAX_BODY_BYTES=16 * 1024 * 1024)
    packed = gzip.compress(BODY)
    bomb = gzip.compress(bytes(100_000_000))
    before_kib = peak_kib(server)
    for data, status in ((packed, 200), (bomb, 413), (packed[:-4], 400), (BODY, 400), (packed, 200)):
        with connected(server) as connection:
            head = ask(
                "POST", "/predict", "Content-Type: application/json", "Content-Encoding: gzip",
                f"Content-Length: {len(data)}",
            )  # fmt: skip
            began = time.monotonic()
            connection.sendall(head + data)
            response = answer(connection)
            body = response.read()
            assert response.status == status, body
            assert time.monotonic() - began < 5
    assert peak_kib(server) - before_kib < 64 * 1024
    assert server.predict([ECHO, 4]).json()["predictions"] == [4]


def peak_kib(server) -> int:
    """The most memory that any process of the server has had."""
    master = server.process.pid
    workers = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    status = "\n".join(Path(f"/proc/{pid}/status").read_text() for pid in (master, *workers))
    return max(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
