"""Clients that all do the same until they are told to pause, and are all idle then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class Crowd:
    """Threads that each call their own function, one request a call, again and again.

    The condition guards `_paused`, `_over` and `_idle`.
    """

    def __init__(self, requests: Sequence[Callable[[], None]]) -> None:
        self._condition = threading.Condition()
        self._paused = self._over = False
        self._idle = 0
        self._threads = [
            threading.Thread(target=self._run, args=(request,), name=f"client-{number}", daemon=True)
            for number, request in enumerate(requests)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    @contextmanager
    def at_rest(self, guard_s: float) -> Iterator[bool]:
        """Let everyone finish the request in hand, and wait in the block; False when some did not within `guard_s`."""
        with self._condition:
            self._paused = True
            all_idle = self._condition.wait_for(lambda: self._idle == len(self._threads), guard_s)
        try:
            yield all_idle
        finally:
            with self._condition:
                self._paused = False
                self._condition.notify_all()

    def stop(self, guard_s: float) -> bool:
        """End after the requests in hand; False when some have not ended within `guard_s`."""
        with self._condition:
            self._over = True
            self._condition.notify_all()
        give_up_at = time.monotonic() + guard_s
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, request: Callable[[], None]) -> None:
        while self._may_go_on():
            request()

    def _may_go_on(self) -> bool:
        with self._condition:
            self._idle += 1
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._over or not self._paused)
            self._idle -= 1
            return not self._over
