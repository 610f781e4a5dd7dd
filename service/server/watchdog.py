"""Ends a process whose model hangs, so that it is replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watchdog:
    """Calls `on_stall(busy_s)` once, as soon as one batch has been running for longer than `limit_s`.

    It looks when the batch that runs would be over the limit, and at an idle model once in `limit_s`. `busy_s`: how
    long the batch that runs now has been running, 0.0 where none does.

    *Thread:* `start` and `close` may be called from any; `busy_s` and `on_stall` are called on the watchdog's own.
    """

    def __init__(self, busy_s: Callable[[], float], limit_s: float, on_stall: Callable[[float], None]) -> None:
        self._busy_s = busy_s
        self._limit_s = limit_s
        self._on_stall = on_stall
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jitney-watchdog", daemon=True)

    def __repr__(self) -> str:
        return f"<Watchdog limit_s={self._limit_s} alive={self._thread.is_alive()} closed={self._closed.is_set()}>"

    def start(self) -> None:
        """Begin to look; call it once."""
        self._thread.start()

    def close(self) -> None:
        """Look no more. Does not wait for the thread, which may be the caller of this."""
        self._closed.set()

    def _run(self) -> None:
        busy_s = 0.0
        # A wait cannot be longer than the system's longest; then there is one look more.
        while not self._closed.wait(min(max(0.0, self._limit_s - busy_s), threading.TIMEOUT_MAX)):
            busy_s = self._busy_s()
            if busy_s >= self._limit_s:
                self._on_stall(busy_s)
                return
