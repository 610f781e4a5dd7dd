"""The worker threads of a batcher: what each of them is doing, and which of them the calling thread is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.batching.tickets import Batch, LaneName

# How long a thread that waits for others to be out of the model waits at a time, seconds; the last of them wakes it.
_LOOK_S = 60.0


class _Here(threading.local):
    """`number`: of the instance that the calling thread is."""

    number = 0


_here = _Here()


def instance() -> int:
    """The number of the worker thread that asks, from 0; 0 on every other thread."""
    return _here.number


@contextmanager
def acting_as(number: int) -> Iterator[None]:
    """Let the calling thread be taken for another worker thread, all of which wait meanwhile: inside a job."""
    before, _here.number = _here.number, number
    try:
        yield
    finally:
        _here.number = before


@dataclass(slots=True, eq=False)
class Instance:
    """What one worker thread is doing; only that thread writes, any may read.

    `batch`: what it has taken out of the queue and is not done with. `busy_since`: clock reading at which it called the
    model; None while it is not in there. `is_ahead`: others' batches would queue behind this one, which is for a
    pipelined model and has not come back.
    """

    number: int
    batch: Batch | None = None
    busy_since: float | None = None
    is_ahead: bool = False


class Instances:
    """All worker threads of a batcher, and the wait until nobody but the waiter has a batch.

    The lock guards nothing but that wait: whoever is done with a batch says so under it.
    """

    def __init__(self, count: int) -> None:
        self._all = tuple(Instance(number) for number in range(count))
        self.first = self._all[0]
        self._lock = threading.Lock()
        self._is_done = threading.Condition(self._lock)
        self._is_awaited = False
        self._thread_ids: set[int] = set()  # single operations on it are atomic

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, number: int) -> Instance:
        """The calling thread is this instance until it leaves."""
        self._thread_ids.add(threading.get_ident())
        _here.number = number
        return self._all[number]

    def leave(self) -> None:
        """The calling thread is none of them any longer; the system may give its id to another thread."""
        self._thread_ids.discard(threading.get_ident())
        _here.number = 0

    def done(self, mine: Instance) -> None:
        """The calling thread has nothing to do with its batch any more."""
        with self._lock:
            mine.batch = mine.busy_since = None
            if self._is_awaited:
                self._is_done.notify_all()

    def wait_for_others(self, mine: Instance) -> None:
        """Wait until no other instance has a batch. Call it where none can take one."""
        with self._lock:
            self._is_awaited = True
            while any(one.batch is not None for one in self._all if one is not mine):
                self._is_done.wait(_LOOK_S)
            self._is_awaited = False

    def has_this_thread(self) -> bool:
        """Whether the calling thread is one of them."""
        return threading.get_ident() in self._thread_ids

    @property
    def idle(self) -> int:
        """How many have no batch."""
        return sum(one.batch is None for one in self._all)

    def rows_of(self, lane: LaneName) -> int:
        """How many rows of that lane are in batches that have been taken and are not done with."""
        return sum(len(batch.rows) for one in self._all if (batch := one.batch) is not None and batch.lane == lane)

    @property
    def one_is_ahead(self) -> bool:
        """Whether a batch for a pipelined model has been taken and has not come back."""
        return any(one.is_ahead for one in self._all)

    @property
    def busy(self) -> int:
        """How many are in the model now."""
        return sum(one.busy_since is not None for one in self._all)

    @property
    def busy_since(self) -> float | None:
        """When the batch was begun that has been in the model for longest; None where there is none."""
        return min((since for one in self._all if (since := one.busy_since) is not None), default=None)
