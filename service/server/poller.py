"""Waiting for clients: one epoll for all connections, and the right to each of them in one hand at a time."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from service.server.connection import Connection, State

_MOST_AT_ONCE = 256


class Poller:
    """Connections that wait for their clients, and what else the main thread waits for.

    A connection that is armed has no owner; to take it out of `_armed` is one step that only one can do, and makes the
    owner.

    *Thread:* any may arm a connection that it owns; the rest is for the main thread.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        # Each event is told once: from then on the connection belongs to whoever claims it, until that one arms it.
        self._read, self._write = select.EPOLLIN | select.EPOLLONESHOT, select.EPOLLOUT | select.EPOLLONESHOT
        self._armed: dict[int, Connection] = {}
        self._others: dict[int, Callable[[], None]] = {}
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch_pipe(self._woken)

    def __repr__(self) -> str:
        return f"<Poller armed={len(self._armed)}>"

    def __len__(self) -> int:
        """How many connections are armed. *Thread:* any."""
        return len(self._armed)

    def arm(self, conn: Connection) -> None:
        """Let go of a connection until its client does what `conn.state` waits for."""
        events = self._write if conn.state is State.SENDING else self._read
        self._armed[conn.fd] = conn  # before the event can come
        arm = self._epoll.modify if conn.is_registered else self._epoll.register
        conn.is_registered = True
        try:  # and not `suppress`, which takes as long as the call
            arm(conn.fd, events)
        except OSError:
            return  # whoever has claimed it since has closed it

    def claim(self, conn: Connection) -> bool:
        """Take a connection that is armed; False where somebody else has been faster, or nobody had armed it."""
        if self._armed.get(conn.fd) is not conn:
            return False
        return self._armed.pop(conn.fd, None) is conn

    def waiting(self) -> list[Connection]:
        """All that are armed at this moment."""
        return list(self._armed.values())

    def wait(self, timeout_s: float) -> list[Connection]:
        """Wait for clients, and call those who watch for something else; returns what is claimed with that."""
        claimed = []
        for fd, _ in self._epoll.poll(timeout_s, _MOST_AT_ONCE):
            conn = self._armed.pop(fd, None)
            if conn is not None:
                claimed.append(conn)
            elif fd in self._others:
                self._others[fd]()
        return claimed

    def watch(self, file: Any, call: Callable[[], None]) -> None:
        """Call `call` from `wait` whenever there is something to read, until `unwatch`."""
        fd = file if isinstance(file, int) else file.fileno()
        self._others[fd] = call
        self._epoll.register(fd, select.EPOLLIN)

    def watch_pipe(self, fd: int) -> None:
        """Have `wait` return whenever something is written to a pipe, which must not block."""

        def drain() -> None:
            with suppress(BlockingIOError):
                os.read(fd, 4096)

        self.watch(fd, drain)

    def unwatch(self, file: Any) -> None:
        """Watch it no more; harmless where it is not watched."""
        fd = file.fileno()
        if self._others.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def wake(self) -> None:
        """Have `wait` return. *Thread:* any, and signal handlers."""
        with suppress(OSError):  # the pipe is full, and it will
            os.write(self._wake, b"\0")

    def close(self) -> None:
        """Wait for nothing any more."""
        self._epoll.close()
        os.close(self._woken)
        os.close(self._wake)
