"""How a batcher is, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from service.batching.admission import WorkerState


@dataclass(frozen=True, slots=True)
class BatcherStatus:
    """A snapshot for health reports. Times in seconds; None where nothing has happened yet.

    `queued`: rows admitted and not yet in a batch; `backlog_s`: how long the model needs for those, at the pace
    measured so far. `busy_s`: how long the batch has been running that runs for longest; `job_s`: likewise a function
    given to `call` or `post`. `instances`: worker threads; `busy_instances`: those in which a batch runs now.
    """

    state: WorkerState
    alive: bool
    queued: int
    backlog_s: float
    oldest_wait_s: float
    busy_s: float
    job_s: float
    last_batch_age_s: float | None
    effective_max_batch_size: int
    cause: BaseException | None
    instances: int = 1
    busy_instances: int = 0
