"""The threads that serve requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Crew(Generic[T]):
    """Threads that do `work` with whatever is put to them, in the order in which it comes.

    `work` must not raise: a thread that ends is not replaced. `on_start`: called first of all on each thread.
    """

    def __init__(self, name: str, size: int, work: Callable[[T], None], on_start: Callable[[], None] | None) -> None:
        self._queue: SimpleQueue[T | None] = SimpleQueue()
        self.put: Callable[[T], None] = self._queue.put
        self._work = work
        self._on_start = on_start
        # Whoever is stuck in a model must not keep the interpreter from ending.
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}_{number}", daemon=True) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def end(self, timeout_s: float) -> None:
        """Have the threads end when they have done what was put to them, and wait for them at most so long."""
        for _ in self._threads:
            self._queue.put(None)
        give_up_at = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - time.monotonic()))

    def _run(self) -> None:
        if self._on_start is not None:
            self._on_start()
        while (item := self._queue.get()) is not None:
            self._work(item)
