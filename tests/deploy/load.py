"""Clients that ask one proxy all the time, until they are told to stop."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.deploy.proxy import GUARD_S, wait_until

BODY = b'{"instances": [[0, 1]]}'
JSON = {"Content-Type": "application/json"}


@dataclass
class Answers:
    """What the clients got, status and body. Each list grows in one step of CPython, so no lock is needed.

    `bad`: every other status, and what there was of answers that ended half way.
    `closed`: kept connections that were closed before anything was answered; the client asked again on another one.
    """

    good: list[tuple[int, bytes]] = field(default_factory=list)
    bad: list[tuple[int, bytes]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def wait_for_more(self, count: int = 200) -> None:
        """Return when so many more requests have been answered well."""
        before = len(self.good)
        wait_until(lambda: len(self.good) >= before + count, f"{count} more good answers")


@contextmanager
def load(port: int, clients: int) -> Iterator[Answers]:
    """`clients` threads that predict without a pause while the block runs."""
    answers = Answers()
    is_over = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, GUARD_S)
        while not is_over.is_set():
            try:
                connection.request("POST", "/predict", BODY, JSON)
                answer = connection.getresponse()
                found = answer.status, answer.read()
            except http.client.IncompleteRead as fault:
                answers.bad.append((answer.status, fault.partial))
                connection.close()
                continue
            except (ConnectionError, http.client.RemoteDisconnected) as fault:
                answers.closed.append(repr(fault))
                connection.close()
                continue
            (answers.good if found[0] == 200 else answers.bad).append(found)
        connection.close()

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(ask) for _ in range(clients)]
        try:
            yield answers
        finally:
            is_over.set()
        for each in running:
            each.result()
