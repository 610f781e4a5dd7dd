"""A server whose model a file holds, and more clients than it has threads, for tests to fill it with."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import ExitStack
from pathlib import Path

# How many have a thread, how many may wait, and how many rows the model has at a time.
THREADS, QUEUE, BATCH = 8, 12, 1

# What a run may take on a machine that has much else to do, times what is promised.
SLOW_MACHINE = 5


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
