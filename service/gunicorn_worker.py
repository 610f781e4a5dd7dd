"""gunicorn's threaded worker, with a clean end: for connections that arrive while it stops, and for itself.

gunicorn's master closes its listening sockets at SIGTERM, but each worker keeps its copy open without accepting from
it: the kernel completes handshakes that nobody will ever serve, and resets them when the worker ends. A client cannot
tell such a reset from a request that was lost half way.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from types import FrameType
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

# linux/filter.h: one instruction, "return 0 bytes of the packet", that is: drop it. Offered by Linux since 2.2.
_SO_ATTACH_FILTER = 26
_DROP_EVERYTHING = struct.pack("HBBI", 0x06, 0, 0, 0)


class Worker(ThreadWorker):  # type: ignore[misc]
    """Answers or refuses newcomers when the server stops."""

    def set_accept_enabled(self, enabled: bool) -> None:
        """Called by the main loop, also once when it has ended and only open requests are still served."""
        super().set_accept_enabled(enabled)
        if not enabled and not self.alive:
            self._refuse_newcomers()

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """SIGQUIT, which the master also sends after SIGINT: leave at once.

        The handler of `ThreadWorker` takes a lock of the thread pool first. When the signal interrupts the main loop
        while that hands a request to the pool, the loop holds this lock, and the worker hangs until it is killed.
        """
        super(ThreadWorker, self).handle_quit(sig, frame)

    def _refuse_newcomers(self) -> None:
        """Take the connections that wait, so that each gets an answer, and close the listening sockets.

        Whoever connects later is refused at once. Does nothing when the master still holds the sockets, as it does
        when it replaces a worker: then another one will accept from them.
        """
        if any(_is_held_by(os.getppid(), listener) for listener in self.sockets):
            return
        for listener in self.sockets:
            _let_nobody_else_in(listener)
            listener.setblocking(False)
            accepted = -1
            while self.nr_conns > accepted:  # accept() does not say whether there was one
                accepted = self.nr_conns
                self.accept(listener)
            listener.close()


def _let_nobody_else_in(listener: Any) -> None:
    """Drop handshakes from now on, so that nobody slips in between the last accept and the close.

    The client's system tries again a second later, and is then refused.
    """
    if sys.platform != "linux" or listener.sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    program = ctypes.create_string_buffer(_DROP_EVERYTHING)
    try:
        listener.sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
    except OSError:
        return  # a sandbox may forbid it; then the gap of some microseconds stays


def _is_held_by(pid: int, listener: Any) -> bool:
    """Whether process `pid` has the socket open; True when that cannot be seen."""
    try:
        wanted = f"socket:[{os.fstat(listener.fileno()).st_ino}]"
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(os.readlink(entry.path) == wanted for entry in entries)
    except OSError:
        return True
