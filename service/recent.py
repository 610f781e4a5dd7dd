"""What has happened lately, in rings of bounded length: for whoever looks at the service now and then."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from service.batching.tickets import BatchInfo

KEPT_BATCHES = 200
KEPT_LATENCIES = 2048

# Over how much of the past the latencies are told, seconds.
LATENCY_WINDOW_S = 60.0


class Named(Protocol):
    """The part of a model that its batches are told apart by."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...


@dataclass(frozen=True, slots=True)
class RecentBatch:
    """A batch that has run. `longest_wait_s`: of its rows, in the queue. `failed_rows`: those that got an error."""

    info: BatchInfo
    model: str
    version: str
    longest_wait_s: float
    failed_rows: int


class RecentBatches:
    """The last batches of one run of the service, `KEPT_BATCHES` at most; its clock starts when it is made.

    *Thread:* the worker adds, any may read. Appending to a deque and copying it are atomic, so there is no lock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.began_at = clock()
        self.began = datetime.now(UTC)
        # Plain tuples: what the worker does here, it does between two batches. The name and not the model, which must
        # not be kept in memory by having been used.
        self._ring: deque[tuple[BatchInfo, str, str, float, int]] = deque(maxlen=KEPT_BATCHES)

    @property
    def uptime_s(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self.began_at

    def add(self, model: Named, info: BatchInfo, waits_s: Sequence[float], failed_rows: int) -> None:
        """A batch has run."""
        self._ring.append((info, model.name, model.version, max(waits_s), failed_rows))

    def batches(self) -> list[RecentBatch]:
        """Those that are kept, oldest first."""
        return [RecentBatch(*one) for one in self._ring.copy()]


class RecentLatencies:
    """How long the last requests took, `KEPT_LATENCIES` at most. Not safe on its own: its owner's lock guards it."""

    def __init__(self) -> None:
        self._ring: deque[tuple[float, float]] = deque(maxlen=KEPT_LATENCIES)

    def add(self, at_s: float, took_s: float) -> None:
        """A request was answered at this clock reading."""
        self._ring.append((at_s, took_s))

    def since(self, at_s: float) -> list[float]:
        """What those took that were answered later than this clock reading, seconds."""
        return [took_s for answered_at_s, took_s in self._ring if answered_at_s > at_s]


def percentile(sorted_values: Sequence[float], percent: int) -> float | None:
    """The least of the values that at least so many percent of them do not exceed; None when there are none."""
    rank = -(-len(sorted_values) * percent // 100)  # rounded up, in whole numbers
    return sorted_values[max(0, rank - 1)] if sorted_values else None
