"""Running totals of a model's batches and requests, for those who ask how well its batching does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from service.batching.tickets import BatchInfo
from service.recent import LATENCY_WINDOW_S, RecentLatencies


@dataclass(frozen=True, slots=True)
class Total:
    """`count` events that took `seconds` in all."""

    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """What has been counted until one moment.

    `rows` and `batches` that the model has answered; `batch_model`: time in the model by rows per batch.
    `succeeded`, `failed`: requests, with all of their time. `queued`, `prepared`, `in_model`, `presented`: the parts of
    the time of those that succeeded. `last_at_s`: the clock at the last request, seconds since 1970; 0 before any.
    """

    rows: int
    batches: int
    batch_model: dict[int, Total]
    succeeded: Total
    failed: Total
    queued: Total
    prepared: Total
    in_model: Total
    presented: Total
    last_at_s: float


class ModelStatistics:
    """The totals of one version of one model. Every method may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # Guards all fields below. It is held for some additions only, and never by a reader for longer than a copy.
        self._lock = threading.Lock()
        self._rows = self._batches = self._successes = self._failures = 0
        self._success_s = self._failure_s = 0.0
        self._queue_s = self._prepare_s = self._model_s = self._present_s = 0.0
        self._last_at_s = 0.0
        # By rows per batch: how many batches, and their seconds in the model.
        self._by_size: dict[int, list[float]] = {}
        self._latencies = RecentLatencies()

    def batch(self, info: BatchInfo, failed_rows: int = 0) -> None:
        """A batch has run; one that failed as a whole does not count. *Thread:* worker."""
        answered = info.size - failed_rows
        if answered <= 0:
            return
        with self._lock:
            self._rows += answered
            self._batches += 1
            entry = self._by_size.get(info.size)
            if entry is None:
                entry = self._by_size[info.size] = [0, 0.0]
            entry[0] += 1
            entry[1] += info.model_s

    def request(self, total_s: float, queue_s: float, prepare_s: float, model_s: float, present_s: float) -> None:
        """A request was answered: its time, and the parts of it; a body that is slow to come is in none of those."""
        at_s = self._clock()
        with self._lock:
            self._last_at_s = at_s
            self._successes += 1
            self._success_s += total_s
            self._latencies.add(at_s, total_s)
            self._queue_s += queue_s
            self._prepare_s += prepare_s
            self._model_s += model_s
            self._present_s += present_s

    def failed_request(self, total_s: float) -> None:
        """A request for the model, by its path or by default, ended with an error, whosever fault it was."""
        at_s = self._clock()
        with self._lock:
            self._last_at_s = at_s
            self._failures += 1
            self._failure_s += total_s

    def recent_latencies_s(self) -> list[float]:
        """What the requests of the last `LATENCY_WINDOW_S` took that were answered well, in no promised order."""
        since_s = self._clock() - LATENCY_WINDOW_S
        with self._lock:
            return self._latencies.since(since_s)

    def totals(self) -> Totals:
        """All totals of one moment."""
        with self._lock:
            count = self._successes
            return Totals(
                rows=self._rows,
                batches=self._batches,
                batch_model={size: Total(int(n), s) for size, (n, s) in sorted(self._by_size.items())},
                succeeded=Total(count, self._success_s),
                failed=Total(self._failures, self._failure_s),
                queued=Total(count, self._queue_s),
                prepared=Total(count, self._prepare_s),
                in_model=Total(count, self._model_s),
                presented=Total(count, self._present_s),
                last_at_s=self._last_at_s,
            )
