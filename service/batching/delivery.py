"""What has come back from the model, handed to its callers; several worker threads may do so at once."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence

from service.batching import checks
from service.batching.admission import Admission
from service.batching.ceiling import Ceiling
from service.batching.faults import FaultKind, log_error
from service.batching.instances import instance
from service.batching.isolation import Outcomes
from service.batching.listeners import Listeners
from service.batching.policy import PackedShape
from service.batching.tickets import Batch, BatchInfo, LaneName, Row, Ticket
from service.errors import PredictionFailed

_log = logging.getLogger("jitney.worker")


Lesson = tuple[LaneName, int, int, float]
"""What a scheduler may learn from a batch: lane, rows, padded length in tokens, of packed rows the mean, seconds."""


class Delivery:
    """Gives each row its outcome, wakes the callers that have all of theirs, and counts.

    Batches that are delivered at the same time may hold rows of one request. The lock guards what they have in common:
    the outcomes of tickets, `row_s` and `last_batch_at`; it is held for additions only. `lessons`: of batches that ran
    well and waited for no other one's device, for whoever has the scheduler; empty where it learns nothing.

    *Thread:* any worker's.
    """

    def __init__(
        self,
        admission: Admission,
        listeners: Listeners,
        *,
        max_batch_size: int,
        learns: bool,
        padded_length: Callable[[Hashable, int], int] | None,
        packing: Callable[[Hashable], PackedShape | None],
    ) -> None:
        self._lock = threading.Lock()
        self._admission = admission
        self._listeners = listeners
        self._learns = learns
        self._padded_length = padded_length
        self._packing = packing
        self._batch_ids = itertools.count(1)
        self.lessons: deque[Lesson] = deque()
        self.ceiling = Ceiling(max_batch_size)
        self.row_s = 0.0
        self.last_batch_at: float | None = None

    def deliver(self, batch: Batch, outcomes: Outcomes, started_at: float, ended_at: float) -> None:
        """A batch has run, from one clock reading to another."""
        rows = batch.rows
        lengths = [row.length for row in rows]
        packed_rows, padded_length = self._shape(batch.lane.key, lengths)
        info = BatchInfo(
            batch_id=next(self._batch_ids),
            size=len(rows),
            reason=batch.reason,
            started_at=started_at,
            model_s=ended_at - started_at,
            runs=outcomes.runs,
            tokens=sum(lengths),
            padded_length=padded_length,
            instance=instance(),
            packed_rows=packed_rows,
        )
        if outcomes.runs == 1:
            self.ceiling.succeeded(len(rows))
        self._answer(batch, outcomes, info)
        errors = list(outcomes.errors.values())
        if self._learns and outcomes.runs == 1 and not errors and not batch.is_behind:
            # What a packed batch costs is told by its rows, as if all were of their mean length.
            length = padded_length if packed_rows is None else max(1, round(info.tokens / info.size))
            self.lessons.append((batch.lane, info.size, length, info.model_s))
        self._listeners.batch(batch, info, errors)

    def fail(self, rows: Sequence[Row], errors: Sequence[PredictionFailed]) -> None:
        """Give rows that no batch will hold their errors, and those who wait for them."""
        with self._lock:
            for row, error in zip(rows, errors, strict=True):
                row.ticket.fail(error, row)
        self._wake_failed(rows)

    def split(self, kind: FaultKind, size: int, key: Hashable) -> None:
        """A call of the model has failed, and its rows are tried again in two halves."""
        if kind is FaultKind.OUT_OF_MEMORY:
            self.ceiling.lower(size)
        self._listeners.split(kind, size, key)

    def _answer(self, batch: Batch, outcomes: Outcomes, info: BatchInfo) -> None:
        """Record every row's outcome, and wake each caller whose request is complete or has failed."""
        over: list[Ticket] = []
        with self._lock:
            for position, row in enumerate(batch.rows):
                ticket = row.ticket
                if position in outcomes.errors:
                    outcomes.errors[position].request_id = ticket.request_id
                    ticket.fail(outcomes.errors[position], row, info)
                elif position not in outcomes.left_out:
                    ticket.answer(row, outcomes.results[position], info)
                    if ticket.unanswered == 0:
                        over.append(ticket)
            self._observe_pace(info)
        if outcomes.errors:
            self._wake_failed([batch.rows[position] for position in outcomes.errors])
        for ticket in over:
            ticket.done.set()

    def _wake_failed(self, rows: Sequence[Row]) -> None:
        """Wake the callers of rows that have failed, once each; their other rows need not run."""
        failed = list({row.ticket: None for row in rows})
        self._admission.give_up(failed)
        for ticket in failed:
            ticket.done.set()

    def _observe_pace(self, info: BatchInfo) -> None:
        """Keep a running mean of the time per row, for the answer to "when is there room again"."""
        row_s = info.model_s / info.size
        self.row_s = row_s if self.row_s == 0.0 else 0.8 * self.row_s + 0.2 * row_s
        self.last_batch_at = info.started_at + info.model_s

    def _shape(self, key: Hashable, lengths: list[int]) -> tuple[int | None, int]:
        """The packed rows of the batch, if it was packed, and their length in tokens."""
        try:
            packing = self._packing(key)
            if packing is not None:
                rows, length = packing(lengths)
                return checks.whole("packed rows", rows), checks.whole("packed length", length)
        except Exception as error:
            log_error(_log, logging.ERROR, "packing() failed; the longest row's length is used", error=error)
        return None, self._padded(key, max(lengths))

    def _padded(self, key: Hashable, longest: int) -> int:
        """To what length the model padded the batch; the longest row's where that is not told, or is nonsense."""
        if self._padded_length is None:
            return longest
        try:
            padded = self._padded_length(key, longest)
            return longest if padded is longest else checks.whole("padded_length", padded, longest)
        except Exception as error:
            log_error(_log, logging.ERROR, "padded_length() failed; the longest row's length is used", error=error)
            return longest
