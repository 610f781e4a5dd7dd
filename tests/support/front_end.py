"""The front end of a worker process on the test's own thread, and gunicorn's own parser beside it, for comparison."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from gunicorn.config import Config
from gunicorn.http.errors import ConfigurationProblem, NoMoreData
from gunicorn.http.parser import RequestParser
from gunicorn.http.wsgi import create
from gunicorn.workers.base import Worker

from service.server import reception
from service.server.connection import Connection
from service.server.departures import Departures
from service.server.environs import Environs
from service.server.overload import Overload
from service.server.poller import Poller
from service.server.reception import Reception
from service.server.refusal import Captured, Muted, status_of
from service.server.refuser import Refuser
from service.server.serving import Serving
from service.server.traffic import Traffic

CLIENT, SERVER = ("127.0.0.1", 5555), ("127.0.0.1", 8000)
LOG = SimpleNamespace(
    access_log_enabled=False,
    access=lambda *_: None,
    debug=lambda *_: None,
    error=lambda *_, **__: None,
    info=lambda *_: None,
)


def config(**values: Any) -> Config:
    """gunicorn's configuration as the service sets it where requests are concerned."""
    cfg = Config()
    for name, value in ({"forwarder_headers": "", "keepalive": 75} | values).items():
        cfg.set(name, value)
    return cfg


class FrontEnd:
    """Reads, judges and serves what is sent to `client`; a request is served as soon as it is handed over.

    `handed_over`: how many were. `refused`: the statuses of those that were not. Used as a context manager.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        cfg: Config | None = None,
        *,
        peer: Any = CLIENT,
        server: Any = SERVER,
        patience_s: float = 5.0,
        threads: int = 8,
        max_body_bytes: int = 1_000_000,
        serves: bool = True,
        shares_core: bool = False,
    ) -> None:
        self.cfg = config() if cfg is None else cfg
        self.traffic = Traffic(1000, keeps_open=True)
        self.traffic.overload = Overload(
            threads=threads,
            limit=100,
            queued_rows=lambda: 0,
            patience_s=patience_s,
            max_body_bytes=max_body_bytes,
        )
        self.poller = Poller()
        self.environs = Environs(self.cfg, self.traffic)
        self.departures = Departures(self.poller, self.traffic)
        self.refuser = Refuser(self.cfg, LOG)
        self.reception = Reception(
            self.poller,
            self.traffic,
            self.environs.parser,
            self.departures,
            threads,
            75.0,
            self._hand_over,
            self._refuse,
            self._fail,
        )
        self.serving = Serving(
            app, self.cfg, LOG, self.traffic, self.reception, self.departures, self.refuser, lambda: shares_core
        )
        self.handed_over: list[Connection] = []
        self.refused: list[int] = []
        self._serves = serves
        self._peer, self._server = peer, server
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> FrontEnd:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self._sockets, *(conn.sock for conn in self.traffic.open)):
            one.close()
        self.poller.close()

    def connect(self) -> socket.socket:
        """A client's side of a new connection."""
        client, ours = socket.socketpair()
        client.settimeout(5)
        ours.setblocking(False)
        self._sockets.append(client)
        conn = self.environs.connection(ours, self._peer, self._server)
        self.traffic.open.add(conn)
        self.reception.welcome(conn)
        return client

    def turn(self, times: int = 1, timeout_s: float = 0.0) -> None:
        """Do what has become possible."""
        for _ in range(times):
            self.reception.received(self.poller.wait(timeout_s))

    def _hand_over(self, conn: Connection) -> None:
        self.handed_over.append(conn)
        self.traffic.enter(conn)
        if self._serves:
            self.serving.serve(conn)

    def _refuse(self, conn: Connection, status: int) -> None:
        self.refused.append(status)
        self.refuser.answer(conn, status)
        self.departures.linger(conn)

    def _fail(self, conn: Connection, error: Exception) -> None:
        self.refuser.answer_error(conn, error)
        self.departures.linger(conn)


def all_that_comes(client: socket.socket) -> bytes:
    """What has been sent to this client, without waiting for more."""
    client.setblocking(False)
    data = b""
    with suppress(BlockingIOError):
        while piece := client.recv(1 << 20):
            data += piece
    return data


def seen(environ: dict[str, Any], body: bytes) -> dict[str, Any]:
    """What an app can tell of a request, in plain values."""
    plain = {key: value for key, value in environ.items() if isinstance(value, (str, bool, int, tuple))}
    return {key: value for key, value in plain.items() if not key.startswith("jitney.")} | {"body": body}


def judged_by_gunicorn(sent: bytes, cfg: Config, peer: Any = CLIENT, server: Any = SERVER) -> list[Any]:
    """What gunicorn's parser makes of a whole stream: what an app would see of each request, and the last's status."""
    client, ours = socket.socketpair()
    writer = threading.Thread(target=_send_all, args=(client, sent), name="writer")
    writer.start()
    found: list[Any] = []
    try:
        parser = RequestParser(cfg, ours, peer)
        while True:
            request = next(parser)
            _, environ = create(request, ours, peer, server, cfg)
            environ["wsgi.multithread"] = True
            found.append(seen(environ, environ["wsgi.input"].read()))
    except (StopIteration, NoMoreData):
        pass  # the end of the stream
    except ConfigurationProblem:
        found.append(404)
    except Exception as error:
        page = Captured()
        muted = SimpleNamespace(log=Muted(LOG.access), cfg=cfg)
        Worker.handle_error(muted, None, page, peer, error)
        found.append(status_of(page.written))
    finally:
        ours.close()
        writer.join(5)
        client.close()
    return found


def _send_all(client: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)


def judged_here(sent: bytes, cfg: Config, peer: Any = CLIENT, server: Any = SERVER, step: int = 1 << 20) -> list[Any]:
    """The same of the service's own front end; `step`: how many bytes come at once."""
    found: list[Any] = []

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = environ["wsgi.input"].read()
        found.append(seen(environ, body))
        start_response("200 OK", [("Content-Length", "0")])
        return []

    # What is not whole gets no thread here however slow the machine is: the test's own thread could not send the rest.
    with patch.object(reception, "EARLY_S", 60.0), FrontEnd(app, cfg, peer=peer, server=server) as front_end:
        client = front_end.connect()
        for start in range(0, len(sent), step):
            with suppress(OSError):
                client.sendall(sent[start : start + step])
                if start + step >= len(sent):  # else who waits for more would wait until time is up
                    client.shutdown(socket.SHUT_WR)
            front_end.turn(2)
        front_end.turn(4)
        answers = all_that_comes(client)
    statuses = [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]
    statuses += [int(part[:3]) for part in answers.split(b"HTTP/1.0 ")[1:]]
    return found + [status for status in statuses if status not in (100, 200)]


logging.getLogger("jitney.request").setLevel(logging.CRITICAL)
