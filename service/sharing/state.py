"""How the owner is, told to its front ends a few times in a second.

Moments are readings of the machine's monotonic clock, which all processes share; so what grows goes on growing in a
front end between two tellings, and when the owner falls silent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from service.batching.admission import WorkerState
from service.batching.status import BatcherStatus
from service.sharing.frames import FrameError

# How often the owner tells, seconds.
TELL_S = 0.25

# An owner that has told nothing for this long, seconds, is taken to be busy since it told last.
SILENCE_S = 2.0


# So many that what they take, and not the shortest wait there is, tells the pace.
_MANY_ROWS = 1_000_000


class OwnerState(NamedTuple):
    """What one telling says. `at`: its moment. `*_since`, `*_at`: moments; None where nothing is going on.

    `row_s`: how long a row takes, at the pace measured so far, seconds.
    """

    at: float
    state: WorkerState
    queued: int
    backlog_s: float
    row_s: float
    oldest_since: float | None
    busy_since: float | None
    job_since: float | None
    last_batch_at: float | None
    effective_max_batch_size: int
    instances: int = 1
    busy_instances: int = 0


def told(status: BatcherStatus, retry_after_s: Callable[[int], float], now: float) -> list[Any]:
    """`status`, taken at `now`, in JSON types."""

    def since(seconds: float | None) -> float | None:
        return now - seconds if seconds else None

    last_age_s = status.last_batch_age_s
    return list(
        OwnerState(
            at=now,
            state=status.state if status.alive or status.state is not WorkerState.RUNNING else WorkerState.DEAD,
            queued=status.queued,
            backlog_s=status.backlog_s,
            row_s=retry_after_s(_MANY_ROWS) / _MANY_ROWS,
            oldest_since=since(status.oldest_wait_s),
            busy_since=since(status.busy_s),
            job_since=since(status.job_s),
            last_batch_at=None if last_age_s is None else now - last_age_s,
            effective_max_batch_size=status.effective_max_batch_size,
            instances=status.instances,
            busy_instances=status.busy_instances,
        )
    )


def heard(told: Any) -> OwnerState:
    """The state that was told; raises FrameError for anything else."""
    try:
        state = OwnerState(*told)
        return state._replace(state=WorkerState(state.state))
    except (ValueError, TypeError) as error:
        raise FrameError("the owner's state is not described as it should be") from error


def as_status(
    state: OwnerState, *, queued_here: int, cause: BaseException | None = None, now: float | None = None
) -> BatcherStatus:
    """What a front end reports of its owner. queued_here: its own rows that have not been answered."""
    now = time.monotonic() if now is None else now

    def age_s(since: float | None) -> float:
        return 0.0 if since is None else max(0.0, now - since)

    silent_s = now - state.at
    is_silent = state.state is WorkerState.RUNNING and silent_s > SILENCE_S
    return BatcherStatus(
        state=state.state,
        alive=state.state not in (WorkerState.DEAD, WorkerState.STOPPED, WorkerState.NEW),
        queued=state.queued,
        backlog_s=state.backlog_s,
        oldest_wait_s=age_s(state.oldest_since) if queued_here or state.queued else 0.0,
        busy_s=max(age_s(state.busy_since), silent_s) if is_silent else age_s(state.busy_since),
        job_s=age_s(state.job_since),
        last_batch_age_s=None if state.last_batch_at is None else age_s(state.last_batch_at),
        effective_max_batch_size=state.effective_max_batch_size,
        cause=cause,
        instances=state.instances,
        busy_instances=state.busy_instances,
    )
