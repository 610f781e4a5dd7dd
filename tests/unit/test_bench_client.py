"""The client of a load: what it takes for an address, and servers that do not behave."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from service.bench.bodies import json_body
from service.bench.client import Client
from service.bench.errors import BadAddress, TooFewFiles

BODY = json_body({"text": "a"})
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
GUARD_S = 10.0


@contextmanager
def serving(*behaviours: Callable[[socket.socket], None]) -> Iterator[str]:
    """Each connection is given to the next of `behaviours`, and is open until all have come."""
    connections = []

    def serve(listener: socket.socket) -> None:
        for behave in behaviours:
            connection, _ = listener.accept()
            connections.append(connection)
            behave(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), name="badly-behaved")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(GUARD_S)
            for connection in connections:
                connection.close()


def never_read(connection: socket.socket) -> None:
    """Take nothing, until the buffers are full."""


def answer(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(ANSWER)


def half_an_answer(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(ANSWER[:-1])
    connection.shutdown(socket.SHUT_RDWR)


def no_http(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"\x00\xff\r\n\r\n")


@pytest.mark.parametrize("behave", [half_an_answer, no_http])
def test_what_is_no_whole_answer_counts_as_a_lost_connection(behave):
    with serving(behave) as url, Client(url, connections=1, timeout_s=GUARD_S) as client:
        assert client.predict(BODY) == ("connection lost", b"")


def test_a_server_that_does_not_even_read_costs_no_connection_for_good():
    large = json_body({"text": "a" * 20_000_000})
    with serving(never_read, answer) as url, Client(url, connections=1, timeout_s=0.3) as client:
        assert client.predict(large) == ("timeout", b"")
        assert client.predict(BODY) == ("200", b"{}")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "http:///path",
        "ftp://host",
        "http://[::1",
        "http://::1:80",
        "http://host:99999",
        "http://host:port",
        "http://host:0",
        "http://two words",
        "http://..",
        f"http://{'a' * 64}.example",
    ],
)
def test_what_is_no_address_of_a_server_is_refused(url):
    with pytest.raises(BadAddress, match="address of a server"):
        Client(url, connections=1)


@pytest.mark.parametrize("url", ["http://host//path", "http://host/two words", "http://host/schön", "http://host/?a=ö"])
def test_a_path_that_cannot_be_sent_is_refused(url):
    with pytest.raises(BadAddress, match="percent-encoded"):
        Client(url, connections=1)


def test_a_password_in_the_address_would_not_be_sent_and_is_refused():
    with pytest.raises(BadAddress, match="--header Authorization") as refused:
        Client("http://someone:secret@host", connections=1)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("host", "host", 80),
        ("host:8000/path", "host", 8000),
        ("https://host", "host", 443),
        ("http://[::1]:8000", "::1", 8000),
    ],
)
def test_addresses_may_be_short(url, host, port):
    with Client(url, connections=1) as client:
        assert (client.host, client.port) == (host, port)


def test_more_connections_than_files_are_refused_and_not_taken_for_faults_of_the_server(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with pytest.raises(TooFewFiles, match=r"ulimit -n"):
        Client("host", connections=64)
    with Client("host", connections=32) as client:
        assert client.connections == 32
