"""Telling a process to stop until it does.

gunicorn's master says so once. A process that was forked a moment ago has the master's own signal handlers still, which
lose it: the stop would then take as long as it may, and end with a kill.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from signal import SIGTERM
from typing import Any

# How long a process may take to get to its own signal handlers, until it is told again.
REPEAT_S = 1.0


class RepeatedStop:
    """Has gunicorn's master repeat SIGTERM while it waits for its processes. It takes the place of two of its methods.

    *Thread:* the master's.
    """

    def __init__(self, server: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._repeat_at: float | None = None
        self._reap: Callable[[], None] = server.reap_workers
        self._stop: Callable[[bool], None] = server.stop
        server.reap_workers = self.reap_workers
        server.stop = self.stop

    def stop(self, graceful: bool = True) -> None:
        """End all processes: in their own time, or at once."""
        if graceful:
            self._repeat_at = self._clock() + REPEAT_S
        self._stop(graceful)

    def reap_workers(self) -> None:
        """Called again and again while the master waits."""
        self._reap()
        if self._repeat_at is not None and self._clock() >= self._repeat_at:
            self._repeat_at = self._clock() + REPEAT_S
            self._server.kill_workers(SIGTERM)
