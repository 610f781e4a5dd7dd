"""Work for the worker thread that can wait until nobody does: tried again and again, at growing distances."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from service.batching.any_batcher import AnyBatcher
from service.errors import DeadlineExceeded, Draining, NotReady, WorkerDead

# How long after a try that came to nothing the next one is made: at first, and at most; each time twice as long.
FIRST_S, LONGEST_S = 1.0, 60.0

# How long a try may wait for the worker thread, seconds; it was idle a moment before.
_PATIENCE_S = 5.0


class Host(Protocol):
    """Whose worker thread it is: a runtime."""

    draining: bool

    def batcher(self) -> AnyBatcher: ...


class SpareTime:
    """Has `work` done on the worker thread, as a job, at moments when no rows wait and no batch runs.

    work(may_go_on) returns whether it came further. It is to end soon, and at once when `may_go_on()` says False:
    someone waits, or the service is stopping. `is_wanted()`: whether something is left to do; asked on any thread.
    first_s: after how long the first try is made; a try that comes further has the next one follow as soon.

    *Thread:* any may call any method; `work` runs on the worker's. The thread that waits in between lives only while
    something is left to do.
    """

    def __init__(
        self,
        host: Host,
        work: Callable[[Callable[[], bool]], bool],
        is_wanted: Callable[[], bool],
        *,
        first_s: float = FIRST_S,
    ) -> None:
        self._host = host
        self._work = work
        self._is_wanted = is_wanted
        self._first_s = first_s
        self._lock = threading.Lock()  # guards _thread
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self.next_at = 0.0  # `time.monotonic()`

    def begin(self) -> None:
        """There is something to do; does nothing where that is known already, or after `close`."""
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self.next_at = time.monotonic() + self._first_s
                self._thread = threading.Thread(target=self._run, name="jitney-spare-time", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Try no more. Does not wait for the thread, nor for a try that has begun."""
        self._closed.set()

    def _run(self) -> None:
        distance_s = self._first_s
        while not self._closed.wait(distance_s) and self._goes_on():
            try:
                came_further = self._try()
            except (Draining, WorkerDead):
                return
            if came_further is not None:
                distance_s = self._first_s if came_further else min(2 * distance_s, LONGEST_S)
            self.next_at = time.monotonic() + distance_s

    def _goes_on(self) -> bool:
        """Whether something is left to do; if not, the next `begin` starts another thread."""
        with self._lock:
            if self._is_wanted():
                return True
            self._thread = None
            return False

    def _try(self) -> bool | None:
        """Whether that came further; None where it could not be tried, or rows came before it was done."""
        came_further: bool | None = None
        with suppress(NotReady, DeadlineExceeded):
            # With several worker threads a job would hold those up that are idle until the others are.
            if self._may_go_on() and self._host.batcher().status().busy_instances == 0:
                came_further = self._host.batcher().call(self._job, _PATIENCE_S)
        return came_further

    def _job(self) -> bool | None:
        # What came since it was asked for goes first, and a stop may have come too.
        if self._may_go_on() and self._work(self._may_go_on):
            return True
        return False if self._may_go_on() else None

    def _may_go_on(self) -> bool:
        """Whether nobody waits, and nobody will stop the service. *Thread:* any, also the one of the job."""
        if self._closed.is_set() or self._host.draining:
            return False
        return self._host.batcher().queued == 0
