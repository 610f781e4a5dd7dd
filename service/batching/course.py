"""How far a request came in the batcher, whatever became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.batching.tickets import BatchInfo, Ticket
from service.errors import PredictionFailed


@dataclass(slots=True)
class Course:
    """Empty until the request leaves; so it stays where the request was not let in.

    `rows`: how many it had. `enqueued_at`, `queue_ended_at`, `left_at`: clock readings of when it was let in, when none
    of its rows waited any longer, and when it left. `batches`: those with rows of it that have run, each once, in their
    order. `failed`: the ids of those that one of its rows failed in. `is_running`: when it left, all of its rows were
    in batches, one of which had not ended. `failure`: the word for what it ended with, None for an answer; for what is
    the model's fault that of the metrics, else the name of the error.

    *Thread:* the request's own.
    """

    rows: int = 0
    enqueued_at: float | None = None
    queue_ended_at: float = 0.0
    left_at: float = 0.0
    batches: list[BatchInfo] = field(default_factory=list)
    failed: frozenset[int] = frozenset()
    is_running: bool = False
    failure: str | None = None

    def end(self, ticket: Ticket, left_at: float, error: BaseException | None = None) -> None:
        """Fill it in from a request that leaves now."""
        ran = [info for info in ticket.batches if info is not None]
        failed_in = (ticket.batches[row] for row in ticket.failed_rows)
        self.rows = len(ticket.batches)
        self.enqueued_at, self.left_at = ticket.enqueued_at, left_at
        if len(ran) == self.rows:
            self.queue_ended_at = max(info.started_at for info in ran)
        else:
            self.queue_ended_at = left_at if ticket.taken_at is None else ticket.taken_at
        self.batches = sorted({info.batch_id: info for info in ran}.values(), key=lambda info: info.started_at)
        self.failed = frozenset(info.batch_id for info in failed_in if info is not None)
        self.is_running = ticket.taken_at is not None and len(ran) < self.rows and not self.failed
        if isinstance(error, PredictionFailed):
            self.failure = error.reason
        elif error is not None:
            self.failure = type(error).__name__
