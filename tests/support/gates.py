"""Models and batchers whose batches a test holds, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from service.batching.batcher import ThreadedBatcher
from service.batching.inbox import DrainedQueue
from service.batching.instances import instance
from support.models import GUARD_S


class Gates:
    """A model of which each call says that it has begun, with its rows, and ends when those are let go."""

    def __init__(self, act: Callable[[list[Any]], list[Any]] = list) -> None:
        self._act = act
        self._lock = threading.Condition()
        self._free: set[Any] = set()
        self.inside: dict[Any, int] = {}  # by its first row, the instance that runs it
        self.seen: list[list[Any]] = []

    def __call__(self, rows: list[Any], key: Any = None) -> list[Any]:
        with self._lock:
            self.seen.append(list(rows))
            self.inside[rows[0]] = instance()
            self._lock.notify_all()
            assert self._lock.wait_for(lambda: not self._free.isdisjoint({rows[0], "all"}), GUARD_S), (
                "nobody lets it go"
            )
            del self.inside[rows[0]]
        return self._act(rows)

    def wait_for(self, *first_rows: Any) -> None:
        """Wait until batches that begin with these rows are in the model together."""
        with self._lock:
            assert self._lock.wait_for(lambda: self.inside.keys() >= set(first_rows), GUARD_S), "they do not come"

    def wait_for_any(self) -> None:
        with self._lock:
            assert self._lock.wait_for(lambda: self.inside, GUARD_S), "none comes"

    def let_go(self, *first_rows: Any) -> None:
        with self._lock:
            self._free.update(first_rows)
            self._lock.notify_all()


class AskedInbox(DrainedQueue[Any]):
    """A queue that tells how often somebody has come to wait for a message."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Semaphore(0)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self.asked.release()
        return super().get(block, timeout)


def two(model: Any, **more: Any) -> ThreadedBatcher:
    """Two threads; rows leave at once and alone unless `more` says otherwise."""
    return ThreadedBatcher(model, **{"instances": 2, "max_batch_size": 1, "max_batch_latency_s": 0.0, **more})
