"""The WSGI variables that requests of one process, and of one connection, have in common."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from functools import partial
from typing import Any

from gunicorn.http.wsgi import WSGIErrorsWrapper, base_environ

from service.server.answer import Answer
from service.server.connection import Connection
from service.server.head_parser import HeadParser
from service.server.traffic import Traffic
from service.wsgi_environ import ANNOUNCED


class ErrorStream:
    """`wsgi.errors`: what gunicorn's log writes to at each moment; SIGUSR1 opens its files anew. *Thread:* any."""

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def write(self, text: str) -> None:
        """Write it, and keep nothing back."""
        WSGIErrorsWrapper(self._cfg).write(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write one after the other."""
        for text in texts:
            self.write(text)

    def flush(self) -> None:
        """Nothing is kept back."""


class Environs:
    """Makes connections, each with what all of its requests say. *Thread:* the main thread's."""

    def __init__(self, cfg: Any, traffic: Traffic) -> None:
        self._traffic = traffic
        self.script_name = os.environ.get("SCRIPT_NAME", "")
        self.parser = HeadParser(cfg, self.script_name)
        common = {"wsgi.multithread": True, "wsgi.url_scheme": "http", "SCRIPT_NAME": self.script_name}
        self._base: dict[str, Any] = base_environ(cfg) | common | {"wsgi.errors": ErrorStream(cfg)}

    def connection(self, sock: socket.socket, client: Any, server: Any) -> Connection:
        """The connection of a socket that was accepted. server: the address of the socket that listens."""
        answer = Answer(sock, self._traffic.closes)
        conn = Connection(sock, client, server, answer)
        conn.is_trusted = self.parser.is_trusted(client)
        conn.base = self._base | {
            "gunicorn.socket": sock,
            "wsgi.early_hints": answer.send_early_hints,
            ANNOUNCED: partial(self._traffic.on_the_way.discard, conn),
        }
        if isinstance(client, tuple):
            conn.base["REMOTE_ADDR"], conn.base["REMOTE_PORT"] = client[0], str(client[1])
        else:
            conn.base["REMOTE_ADDR"] = client.decode() if isinstance(client, bytes) else client
        if isinstance(server, tuple):
            conn.base["SERVER_NAME"], conn.base["SERVER_PORT"] = server[0], str(server[1])
        return conn
