"""Stopping a thread between two steps, so that a race happens every time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from service.batching.inbox import DrainedQueue
from service.batching.one_shot import OneShotEvent
from service.batching.policy import BatchLimits
from service.batching.tickets import Row, Ticket
from support.models import GUARD_S

# How long a thread is given to run into a lock that it must not pass. Only a broken run gets further in that time.
GRACE_S = 0.3


class Parking:
    """A place where one thread stops until it is let go."""

    def __init__(self) -> None:
        self.parked = threading.Event()
        self.go = threading.Event()

    def stop_here(self) -> None:
        self.parked.set()
        assert self.go.wait(GUARD_S), "nobody let the parked thread go on"


class ParkingClock:
    """The real time; but one chosen thread stops at its n-th look at the clock.

    A request looks once before it reaches the admission, and once inside, between check and act.
    """

    def __init__(self, thread_name: str, look: int, parking: Parking) -> None:
        self._thread_name = thread_name
        self._left = look
        self._parking = parking

    def __call__(self) -> float:
        if threading.current_thread().name == self._thread_name:
            self._left -= 1
            if self._left == 0:
                self._parking.stop_here()
        return time.monotonic()


class RefittingInbox(DrainedQueue[Any]):
    """A queue that lets a test exchange parts of a request before the worker or its waiter touches them."""

    def __init__(self, refit: Callable[[Ticket], None]) -> None:
        super().__init__()
        self._refit = refit

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if isinstance(item, Ticket):
            self._refit(item)
        super().put(item, block, timeout)


class CountingInbox(DrainedQueue[Any]):
    """A queue that tells when so many requests have entered."""

    def __init__(self) -> None:
        super().__init__()
        self._entered = threading.Semaphore(0)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if isinstance(item, Ticket):
            self._entered.release()

    def wait_for_requests(self, count: int) -> None:
        for _ in range(count):
            assert self._entered.acquire(timeout=GUARD_S), "the requests do not come"


class Turnstile(OneShotEvent):
    """A latch that calls `on_timeout` when a wait has run out, before the waiter learns of it."""

    def __init__(self, on_timeout: Callable[[], None]) -> None:
        super().__init__()
        self._on_timeout = on_timeout

    def wait(self, timeout_s: float) -> bool:
        arrived = super().wait(timeout_s)
        if not arrived:
            self._on_timeout()
        return arrived


class ParkingRows(dict[int, Row]):
    """The waiting rows of a request; whoever takes one out stops first."""

    def __init__(self, rows: dict[int, Row], parking: Parking) -> None:
        super().__init__(rows)
        self._parking = parking

    def __delitem__(self, index: int) -> None:
        self._parking.stop_here()
        super().__delitem__(index)


class ParkingScheduler:
    """Arrival order, but the worker stops between choosing rows and taking them."""

    def __init__(self, parking: Parking) -> None:
        self._parking = parking

    def look_ahead(self, limits: BatchLimits) -> int:
        return limits.max_rows

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
        if not self._parking.parked.is_set():
            self._parking.stop_here()
        return list(range(min(len(rows), limits.max_rows)))
