"""Answers that get ready one right after the other, and leave together."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from service.server.answer import ClientGone
from service.server.connection import Connection

# As many leave together at most; whoever is behind them begins anew.
MOST_TOGETHER = 64

# Has the core's other threads run that can, and returns when it is this one's turn again. Python's own keeps the
# interpreter meanwhile, before 3.12, and the others could do nothing.
_let_others_go_on = ctypes.CDLL(None).sched_yield


class Outbox:
    """Sends answers that are ready as a whole: those of a batch in one go, where the threads share a core.

    The callers of a batch are woken together, and get their answers ready one after the other. Sent at once, each would
    wake its client, or the proxy, which sleeps again before the next one comes: that was a quarter of what a small
    request costs. So whoever is ready first lets the others of this core go on, and then sends what has got ready:
    after as long as they have something to do, or until the system gives it its turn, a few milliseconds at most.

    `shares_core()`: whether all threads that answer run on one core. Where they do not, to let others go on would only
    hand the interpreter over. `pass_on(conn, is_gone)`: gives up a connection whose answer is sent, as far as there was
    room for it, or whose client has left.

    *Thread:* any.
    """

    def __init__(self, shares_core: Callable[[], bool], pass_on: Callable[[Connection, bool], None]) -> None:
        self.shares_core = shares_core
        self._pass_on = pass_on
        self._lock = threading.Lock()  # guards _ready
        self._ready: list[Connection] = []

    def put(self, conn: Connection, *, others_are_inside: bool) -> None:
        """Have the answer of this connection sent, and the connection passed on, by this thread or another one.

        others_are_inside: whether there are requests that could get ready meanwhile.
        """
        with self._lock:
            self._ready.append(conn)
            count = len(self._ready)
        if count == 1:
            if others_are_inside:
                _let_others_go_on()
        elif count < MOST_TOGETHER:
            return  # the first one sends it too
        with self._lock:
            ready, self._ready = self._ready, []
        # All are sent before the first is passed on; those whose clients had no room come last: one may be waited for.
        sent = [(conn, _has_left(conn)) for conn in ready]
        for conn, is_gone in sorted(sent, key=lambda one: bool(one[0].answer.unsent)):
            self._pass_on(conn, is_gone)


def _has_left(conn: Connection) -> bool:
    """Whether the client has, when as much as possible was sent."""
    try:
        conn.answer.send_more()
    except ClientGone:
        return True
    return False
