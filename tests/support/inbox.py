"""An inbox that moves a fake clock instead of waiting."""

from __future__ import annotations

import queue
from collections import deque

from service.batching.admission import Signal
from service.batching.tickets import Ticket
from service.batching.worker import IDLE_WAIT_S
from support.clock import FakeClock

# A worker that asks more often than this is going round in circles.
MOST_GETS = 200_000


class FakeInbox:
    """Where the real one would wait, time passes until something arrives or the wait is over.

    When nothing is left to happen and the worker is idle, it is told to stop, so that `Worker.run` returns.
    `waits` remembers every wait that was asked for.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._items: deque[Ticket | Signal] = deque()
        self._gets = 0
        self.waits: list[float] = []

    def put(self, item: Ticket | Signal) -> None:
        self._items.append(item)

    def qsize(self) -> int:
        return len(self._items)

    def drain(self) -> list[Ticket | Signal]:
        items = list(self._items)
        self._items.clear()
        return items

    def get(self, block: bool = True, timeout: float | None = None) -> Ticket | Signal:
        self._gets += 1
        assert self._gets < MOST_GETS, "the worker does not come to rest"
        if not self._items and block:
            assert timeout is not None, "a wait without a bound"
            assert timeout > 0, "a wait must not be negative"
            self.waits.append(timeout)
            self._pass_time(timeout)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def _pass_time(self, timeout: float) -> None:
        until = self._clock.now + timeout
        while not self._items:
            moment = self._clock.next_moment
            if moment is None and timeout >= IDLE_WAIT_S:
                self._items.append(Signal.STOP)
            elif moment is None or moment > until:
                self._clock.advance_to(until)
                return
            else:
                self._clock.advance_to(moment)
