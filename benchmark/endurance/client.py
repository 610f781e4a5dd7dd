"""A client that keeps its connection, and says exactly what became of each request."""

from __future__ import annotations

import http.client
import json
import random
import select
import socket
import struct
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class End(StrEnum):
    """How a request ended, seen from outside."""

    ANSWERED = "answered"
    CLOSED = "closed"  # the connection ended before a byte of the answer
    CUT = "cut"  # it ended within the answer
    HUNG = "hung"  # neither, for longer than the client waits
    ABORTED = "aborted"  # the client itself went


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `status`, `process`: of an answer. `reused`: the connection had carried a request before, so
    that a client may send the request again when it was closed without an answer. Times are `time.monotonic()`.
    """

    end: End
    began: float
    ended: float
    reused: bool
    status: int | None = None
    process: int | None = None
    headers: Any = None
    body: bytes = b""

    def json(self) -> Any:
        """The body of an answer; None for what is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Client:
    """One connection at a time, opened again when it was closed. *Thread:* one."""

    def __init__(self, host: str, port: int, guard_s: float) -> None:
        self._address = (host, port)
        self._connection = http.client.HTTPConnection(host, port, timeout=guard_s)

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()

    def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
        """Send one request and wait for its end; raises nothing that a server can cause."""
        connection, began = self._connection, time.monotonic()
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()  # as every client does that finds out in time
        reused = connection.sock is not None
        end, status, process, told, content = End.ANSWERED, None, None, None, b""
        try:
            connection.request(method, path, body or None, headers or {})
            answer = connection.getresponse()
            status, told = answer.status, answer.headers
            process = int(told["X-Process"]) if "X-Process" in told else None
            content = answer.read()
        except TimeoutError:
            end = End.HUNG
        except (OSError, http.client.HTTPException):
            end = End.CLOSED if status is None else End.CUT
        if end is not End.ANSWERED:
            connection.close()
        return Reply(end, began, time.monotonic(), reused, status, process, told, content)

    def predict(self, body: dict[str, Any]) -> Reply:
        """Ask for a prediction."""
        return self.ask("POST", "/predict", json.dumps(body).encode(), {"Content-Type": "application/json"})

    def abort(self, body: bytes, rng: random.Random) -> Reply:
        """Begin a prediction on a connection of its own, and leave: in the head, in the body, or while it is served."""
        lines = ["POST /predict HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        whole = head + body
        sent = rng.choice([whole[: len(head) // 2], whole[: len(head) + len(body) // 2], whole, whole])
        began = time.monotonic()
        try:
            with socket.create_connection(self._address, timeout=10) as connection:
                connection.sendall(sent)
                time.sleep(rng.uniform(0.0, 0.1))
                if rng.random() < 0.5:  # a reset instead of an orderly end
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass  # the server was faster
        return Reply(End.ABORTED, began, time.monotonic(), reused=False)
