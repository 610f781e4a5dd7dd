"""What a scheduler costs in tokens: the worker of `service.batching` serves a line of texts, with a model that counts.

The worker, its admission and its lanes are the ones that serve requests; only the clock is not the real one: by it
every batch takes the same time. So a wait can be told in batches, and nothing depends on how fast the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from service.batching.admission import Admission, Message, Signal, WorkerState
from service.batching.inbox import DrainedQueue
from service.batching.lanes import Lanes
from service.batching.listeners import Listeners, NullListener
from service.batching.policy import BatchPolicy, Company
from service.batching.schedulers import make_scheduler
from service.batching.tickets import BatchInfo, Ticket
from service.batching.worker import Worker
from service.errors import PredictionFailed

# Far below everything that the batcher itself measures time by.
BATCH_S = 1e-6


@dataclass(frozen=True, slots=True)
class TokenCost:
    """What all batches together were: `batch_tokens` is the sum of rows times longest row, `own_tokens` that of the
    rows' own lengths. `longest_wait_batches`: batches that left while a row waited, for the row with most of them.
    """

    batches: int
    own_tokens: int
    batch_tokens: int
    longest_wait_batches: int

    @property
    def padding_tokens(self) -> int:
        """Tokens that were computed only because rows of different length shared a batch."""
        return self.batch_tokens - self.own_tokens


def token_cost(
    scheduler: str, lengths: Sequence[int], *, batch_size: int, backlog_rows: int, batch_s: float = BATCH_S
) -> TokenCost:
    """Serve texts of these lengths, one a request, with `backlog_rows` of them waiting as long as there are so many.

    batch_s: how long each batch takes, seconds.
    """
    inbox: DrainedQueue[Message] = DrainedQueue()
    line = _Line(lengths, backlog_rows, batch_s)
    admission = Admission(inbox, backlog_rows, counts_arrivals=False, clock=line.clock)
    admission.advance(WorkerState.RUNNING)
    worker = Worker(
        admission,
        inbox,
        line.predict,
        lanes=Lanes(quantum=batch_size, company=Company(BatchPolicy.WINDOW, math.inf)),
        scheduler=make_scheduler(scheduler),
        max_batch_size=batch_size,
        max_batch_tokens=None,
        listeners=Listeners(line),
        clock=line.clock,
    )
    line.refill(admission)
    # Told to stop from the start, it serves until nothing waits, the last and short batch included.
    inbox.put(Signal.STOP)
    worker.run()
    line.check()
    return TokenCost(
        batches=len(line.batches),
        own_tokens=sum(info.tokens for info in line.batches),
        batch_tokens=sum(info.size * info.padded_length for info in line.batches),
        longest_wait_batches=round(max(line.waits_s) / batch_s),
    )


class _Line(NullListener):
    """The callers, the model and the listener at once: whenever a batch has left, others join the line behind it."""

    def __init__(self, lengths: Sequence[int], backlog_rows: int, batch_s: float) -> None:
        self.batches: list[BatchInfo] = []
        self.waits_s: list[float] = []
        self._coming = list(lengths)[::-1]
        self._backlog_rows = backlog_rows
        self._admission: Admission | None = None
        self._tickets: list[tuple[Ticket, int]] = []
        self._batch_s = batch_s
        self._left = 0

    def clock(self) -> float:
        """Seconds for all the batches that have left."""
        return self._left * self._batch_s

    def refill(self, admission: Admission) -> None:
        """Let texts join until `backlog_rows` wait."""
        self._admission = admission
        while self._coming and admission.queued < self._backlog_rows:
            length = self._coming.pop()
            ticket = Ticket.of([length], [length], key=None, deadline=math.inf)
            admission.admit(ticket, None, float)
            self._tickets.append((ticket, length))

    def predict(self, key: Hashable, lengths: list[Any]) -> list[Any]:  # noqa: ARG002
        """The texts' own lengths."""
        self._left += 1
        assert self._admission is not None
        self.refill(self._admission)
        return lengths

    def on_batch(
        self,
        info: BatchInfo,
        key: Hashable,  # noqa: ARG002
        waits_s: Sequence[float],
        errors: Sequence[PredictionFailed],  # noqa: ARG002
    ) -> None:
        self.batches.append(info)
        self.waits_s.extend(waits_s)

    def check(self) -> None:
        """Every text was answered, with its own result."""
        assert not self._coming
        assert all(ticket.done.is_set() and ticket.results == [length] for ticket, length in self._tickets)
