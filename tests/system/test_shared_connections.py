"""New connections go to the worker processes that have few, and never wait long for one that does not take them."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.system.conftest import Server, free_port
from tests.system.test_worker_processes import all_ready, worker_pids

pytestmark = pytest.mark.system

CLIENTS = 60

# Each connection may be left to others for some milliseconds; the rest is for a busy machine.
PROMPT_S = 3.0


def sockets(pid: int) -> int:
    """How many a process has open."""
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += os.readlink(entry).startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process is there, and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def connect(server, stack: ExitStack) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return stack.enter_context(socket.create_connection((host, int(port)), timeout=10))


def ask(connection: socket.socket) -> None:
    """Have it answered, and kept."""
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def kept_connections(server, stack: ExitStack, count: int = CLIENTS) -> float:
    """Open so many at once, have each answered, and keep them; returns how long that took, seconds."""
    began = time.monotonic()
    opened = [connect(server, stack) for _ in range(count)]
    for connection in opened:
        ask(connection)
    return time.monotonic() - began


def of_each(server, before: dict[int, int]) -> dict[int, int]:
    return {pid: sockets(pid) - count for pid, count in before.items()}


def quiet(server) -> dict[int, int]:
    """How many sockets each of two processes has when nothing is left of earlier clients."""
    counts: dict[int, int] = {}

    def is_quiet() -> bool:
        before, now = dict(counts), {pid: sockets(pid) for pid in worker_pids(server)}
        counts.clear()
        counts.update(now)
        time.sleep(0.1)
        return before == now and len(set(now.values())) == 1

    server.wait_until(is_quiet)
    return counts


def started(start) -> tuple[Server, dict[int, int]]:
    """A server of two processes, and how many sockets each has when nobody is connected."""
    server = start(WEB_WORKERS=2)
    all_ready(server, 2)
    return server, quiet(server)


def test_no_process_has_much_more_of_the_kept_connections_than_another(start):
    server, before = started(start)
    shares = []
    # Rounds, as chance alone often shares out one evenly enough, and a machine that stalls one of the two spoils one.
    for _ in range(6):
        with ExitStack() as stack:
            kept_connections(server, stack)
            now = of_each(server, before)
            assert sum(now.values()) == CLIENTS
            shares.append(min(now.values()) / CLIENTS)
        server.wait_until(lambda: set(of_each(server, before).values()) == {0})
    assert sorted(shares)[1] >= 1 / 3, shares


def test_clients_that_come_while_one_process_has_many_connections_get_to_the_other(start):
    server, before = started(start)
    _, second = before
    with ExitStack() as stack:
        with stopped(second):
            assert kept_connections(server, stack, 20) < PROMPT_S
        for _ in range(20):  # one after the other, and each would be anybody's
            ask(connect(server, stack))
        # The first still takes some for those that it has left in vain.
        assert of_each(server, before)[second] >= 14


def test_a_process_that_takes_nothing_holds_up_nobody(start):
    server, before = started(start)
    first, second = before
    with ExitStack() as stack:
        with stopped(second):
            assert kept_connections(server, stack) < PROMPT_S
            for _ in range(5):
                began = time.monotonic()
                ask(connect(server, stack))
                assert time.monotonic() - began < PROMPT_S
            assert sockets(first) - before[first] == CLIENTS + 5
        server.wait_until(lambda: server.get("/healthz").status_code == 200)


def test_a_killed_process_is_left_nothing(start):
    server = start(WEB_WORKERS=2)
    all_ready(server, 2)
    killed = min(worker_pids(server))
    os.kill(killed, signal.SIGKILL)
    server.wait_until(lambda: "SIGKILL" in server.text())
    all_ready(server, 2, boots=3)
    before = quiet(server)

    def is_shared() -> bool:
        """The young process has begun to accept, which is a moment after it is ready."""
        with ExitStack() as stack:
            assert kept_connections(server, stack) < PROMPT_S
            return min(of_each(server, before).values()) >= CLIENTS / 3

    server.wait_until(is_shared, guard_s=20)


def test_connections_to_several_addresses_are_shared_too_and_after_a_reload(start, tmp_path):
    port, path = free_port(), tmp_path / "socket"
    server = start("-b", f"127.0.0.1:{port}", "-b", f"unix:{path}", WEB_WORKERS=2, wait=False)
    server.url = f"http://127.0.0.1:{port}"
    all_ready(server, 2)
    old = worker_pids(server)
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: worker_pids(server).isdisjoint(old))
    before = quiet(server)
    with ExitStack() as stack:
        assert kept_connections(server, stack, CLIENTS // 2) < PROMPT_S
        for _ in range(CLIENTS // 2):
            local = stack.enter_context(socket.socket(socket.AF_UNIX))
            local.connect(str(path))
            ask(local)
        now = of_each(server, before)
    assert sum(now.values()) == CLIENTS
    assert min(now.values()) >= CLIENTS / 3, now
