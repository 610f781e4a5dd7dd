"""Which of a lane's waiting rows share the next batch.

A scheduler sees the rows in the order in which they would be served first come first served, and names those
that leave now. Whatever it chooses, the lane guarantees that the row whose turn it is leaves after at most
`MAX_PASSES` further batches of its lane, so that a scheduler can be unfair but never starve anyone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Protocol, runtime_checkable

from service.batching.cost import Cost
from service.batching.cost_table import BestSize
from service.batching.faults import text_of
from service.batching.grouped import Grouped
from service.batching.policy import BatchLimits
from service.batching.tickets import LaneName, Row

ENTRY_POINT_GROUP = "jitney.schedulers"


class Scheduler(Protocol):
    """Chooses a batch.

    `look_ahead(limits)`: how many waiting rows it wants to see. `select(rows, limits, passes)`: rows is not empty and
    in arrival order; the answer holds distinct positions in it, in the order in which the batch is to be laid out,
    and is within `limits`. `passes`: how many batches of this lane in a row have left without rows[0].
    *Thread:* the worker thread that leads, so one at a time. An exception fails the rows at the front and nobody else.
    """

    def look_ahead(self, limits: BatchLimits) -> int: ...

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]: ...


@runtime_checkable
class LearningScheduler(Scheduler, Protocol):
    """A scheduler that also hears what batches took, and may send one before its time.

    `learn(lane, rows, length, seconds)`: a batch of that lane has run, in one piece and without a failure; `length` is
    what its rows were padded to, tokens, or their mean length where they are packed. `enough(front, limits)`: so many
    rows are enough for a batch around `front`, the row whose turn it is: where as many wait, it leaves at once.
    `learnt(lane)`: what is known of a lane, for people; called by any thread.
    *Thread:* the worker thread that leads, so one at a time. An exception is logged, and costs nobody anything.
    """

    def learn(self, lane: LaneName, rows: int, length: int, seconds: float) -> None: ...

    def enough(self, front: Row, limits: BatchLimits) -> int: ...

    def learnt(self, lane: LaneName) -> list[BestSize]: ...


class Fifo:
    """Arrival order."""

    def look_ahead(self, limits: BatchLimits) -> int:
        """No further than the batch itself."""
        return limits.max_rows

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:  # noqa: ARG002
        """The longest run from the front that fits."""
        if limits.max_tokens is None:
            return list(range(min(len(rows), limits.max_rows)))
        longest = 0
        for count, row in enumerate(rows):
            longest = max(longest, row.length)
            if not limits.fits(count + 1, longest):
                return list(range(count))
        return list(range(len(rows)))


class LengthAware(Fifo):
    """The batch of arrival order, longest row first. It changes the layout of a batch, never its cost."""

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
        """Same rows as `Fifo`; ties keep arrival order."""
        return sorted(super().select(rows, limits, passes), key=lambda position: -rows[position].length)


class Auto:
    """`Cost` where rows have a length, `Fifo` where they have none: there is nothing to choose by, and a small model's
    batch would take less time than the choice.
    """

    def __init__(self) -> None:
        self._cost, self._fifo = Cost(), Fifo()
        self._has_met_lengths = False

    def look_ahead(self, limits: BatchLimits) -> int:
        """No further than the batch itself, as long as no row has come that has a length."""
        return (self._cost if self._has_met_lengths else self._fifo).look_ahead(limits)

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
        """As the one of the two does that the rows are for."""
        if any(row.length > 1 for row in rows):
            self._has_met_lengths = True
            return self._cost.select(rows, limits, passes)
        return self._fifo.select(rows, limits, passes)

    def learn(self, lane: LaneName, rows: int, length: int, seconds: float) -> None:
        """Only batches that have a length teach."""
        if length > 1:
            self._has_met_lengths = True
            self._cost.learn(lane, rows, length, seconds)

    def enough(self, front: Row, limits: BatchLimits) -> int:
        """As many as a batch may have, of rows without a length."""
        return self._cost.enough(front, limits) if front.length > 1 else limits.max_rows

    def learnt(self, lane: LaneName) -> list[BestSize]:
        """What `Cost` has learnt. *Thread:* any."""
        return self._cost.learnt(lane)


_FACTORIES: dict[str, Callable[[], Scheduler]] = {
    "auto": Auto,
    "cost": Cost,
    "fifo": Fifo,
    "grouped": Grouped,
    "length_aware": LengthAware,
}


class NoScheduler(ValueError):
    """There is no scheduler of that name, or its plug-in is broken; the message is written for people."""


def register_scheduler(name: str, factory: Callable[[], Scheduler]) -> None:
    """Make a scheduler available under `name`; a later registration replaces an earlier one, or a plug-in."""
    _FACTORIES[name] = factory


def scheduler_names() -> list[str]:
    """Every name that `make_scheduler` takes, sorted."""
    return sorted({*_FACTORIES, *(entry_point.name for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP))})


def make_scheduler(name: str) -> Scheduler:
    """A new scheduler: built in, registered, or brought by a plug-in package; raises NoScheduler."""
    if name in _FACTORIES:
        return _FACTORIES[name]()
    for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            scheduler: Scheduler = entry_point.load()()
        except Exception as error:
            told = f"{type(error).__name__}: {text_of(error)}"
            raise NoScheduler(f"the plug-in {entry_point.value!r} for scheduler {name!r} failed: {told}") from error
        return scheduler
    raise NoScheduler(f"unknown scheduler {name!r}; known: {', '.join(scheduler_names())}")
