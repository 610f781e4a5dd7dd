"""What the worker class itself spends on a request: one connection through its parts, without threads and Flask."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterable
from typing import Any

from gunicorn.config import Config

from service.server.connection import Connection, State
from service.server.departures import Departures
from service.server.environs import Environs
from service.server.poller import Poller
from service.server.reception import Reception
from service.server.refuser import Refuser
from service.server.serving import Serving
from service.server.traffic import Traffic

SYSTEM_CALLS = "system calls of a request and its answer, both sides"
SERVER = "the worker class around an app that answers at once"

_THREADS = 64
_KEEPALIVE_S = 60.0
_ANSWER_BYTES = 4096
_ANSWER = b'{"predictions":[7],"model_name":"digits","model_version":"1","latency_ms":1.234}'
_HEADERS = [
    ("Content-Type", "application/json"),
    ("Content-Length", str(len(_ANSWER))),
    ("X-Request-ID", "0123456789abcdef"),
    ("X-Model-Version", "1"),
    ("Server-Timing", "preprocess;dur=0.034, queue;dur=0.123, model;dur=0.345, total;dur=1.234"),
]


class _Quiet:
    """A log without an access log."""

    access_log_enabled = False


class ServerPart:
    """A client's connection and all that serves it, on one thread. A context manager."""

    def __init__(self, body: bytes) -> None:
        lines = ["POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
        self._request = head.encode() + body
        self._given: list[Connection] = []

    def __enter__(self) -> ServerPart:
        cfg, traffic = Config(), Traffic(_THREADS, keeps_open=True)
        environs, self._poller = Environs(cfg, traffic), Poller()
        departures, refuser = Departures(self._poller, traffic), Refuser(cfg, _Quiet)
        self._reception = Reception(
            self._poller, traffic, environs.parser, departures, _THREADS, _KEEPALIVE_S, self._give, _refused, _failed
        )
        self._serving = Serving(_app, cfg, _Quiet, traffic, self._reception, departures, refuser)
        self._traffic = traffic
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._client = socket.create_connection(listener.getsockname())
            self._served, address = listener.accept()
            self._served.setblocking(False)
            conn = environs.connection(self._served, address, listener.getsockname())
        traffic.open.add(conn)
        self._reception.welcome(conn)
        self._answered = self.request()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._served.close()
        self._poller.close()

    def request(self) -> bytes:
        """One request through the worker class."""
        self._client.send(self._request)
        self._reception.received(self._poller.wait(1.0))
        self._serving.serve(self._given.pop())
        return self._client.recv(_ANSWER_BYTES)

    def system_calls(self) -> Callable[[], object]:
        """The system calls of `request` and nothing else; afterwards there is no `request` any more."""
        events = select.EPOLLIN | select.EPOLLONESHOT
        fd, waiting = self._served.fileno(), select.epoll()
        waiting.register(fd, events)

        def call() -> bytes:
            self._client.send(self._request)
            waiting.poll(1.0)
            self._served.recv(_ANSWER_BYTES)
            self._served.send(self._answered)
            waiting.modify(fd, events)
            return self._client.recv(_ANSWER_BYTES)

        return call

    def _give(self, conn: Connection) -> None:
        self._traffic.enter(conn)
        conn.state = State.SERVED
        self._given.append(conn)


def _app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    environ["wsgi.input"].read()
    start_response("200 OK", _HEADERS)
    return [_ANSWER]


def _refused(_: Connection, status: int) -> None:
    raise AssertionError(f"the server refused a request with {status}")


def _failed(_: Connection, error: Exception) -> None:
    raise error
