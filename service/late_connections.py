"""Connections that arrive at the very moment a server stops.

gunicorn's master closes its listening sockets at SIGTERM, but each worker keeps its copy open without accepting from
it: the kernel completes handshakes that nobody will ever serve, and resets them when the worker ends. A client cannot
tell such a reset from a request that was lost half way.
"""

from __future__ import annotations

import os
from typing import Any


def refuse_newcomers(worker: Any) -> None:
    """Take the connections that wait, so that each gets an answer, and close the listening sockets.

    Whoever connects later is refused at once. Does nothing when another process will accept from the same sockets,
    as when gunicorn replaces a worker: the master then still holds them.
    *Thread:* the main thread of a gthread worker, in its SIGTERM handler.
    """
    if any(_is_held_by(os.getppid(), listener) for listener in worker.sockets):
        return
    worker.set_accept_enabled(False)
    for listener in worker.sockets:
        listener.setblocking(False)
        accepted = -1
        while worker.nr_conns > accepted:  # the worker's accept() does not say whether there was one
            accepted = worker.nr_conns
            worker.accept(listener)
        listener.close()


def _is_held_by(pid: int, listener: Any) -> bool:
    """Whether process `pid` has the socket open; True when that cannot be seen."""
    try:
        wanted = f"socket:[{os.fstat(listener.fileno()).st_ino}]"
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(os.readlink(entry.path) == wanted for entry in entries)
    except OSError:
        return True
