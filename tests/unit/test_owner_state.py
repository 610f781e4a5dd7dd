from __future__ import annotations

import pytest

from service.batching.admission import WorkerState
from service.batching.status import BatcherStatus
from service.sharing.frames import FrameError
from service.sharing.state import SILENCE_S, as_status, heard, told


def status(**more: object) -> BatcherStatus:
    facts = {
        "state": WorkerState.RUNNING,
        "alive": True,
        "queued": 0,
        "backlog_s": 0.0,
        "oldest_wait_s": 0.0,
        "busy_s": 0.0,
        "job_s": 0.0,
        "last_batch_age_s": None,
        "effective_max_batch_size": 16,
        "cause": None,
    }
    return BatcherStatus(**{**facts, **more})  # type: ignore[arg-type]


def after(seconds: float, one: BatcherStatus, queued_here: int = 0) -> BatcherStatus:
    """What a front end reports so long after the owner has told `one`."""
    state = heard(told(one, lambda rows: max(0.005, rows * 0.25), now=100.0))
    assert state.row_s == 0.25
    return as_status(state, queued_here=queued_here, now=100.0 + seconds)


def test_what_is_told_is_reported():
    one = status(queued=3, backlog_s=0.5, oldest_wait_s=0.25, busy_s=1.5, job_s=0.5, last_batch_age_s=2.0)
    assert after(0.0, one) == one
    busy = status(busy_s=1.0, instances=3, busy_instances=2)
    assert after(0.0, busy) == busy


def test_what_grows_goes_on_growing():
    now = after(1.0, status(queued=3, oldest_wait_s=0.25, busy_s=1.5, last_batch_age_s=2.0))
    assert (now.oldest_wait_s, now.busy_s, now.last_batch_age_s) == (1.25, 2.5, 3.0)


def test_an_idle_owner_stays_idle_until_it_is_silent():
    assert after(SILENCE_S, status()).busy_s == 0.0
    assert after(SILENCE_S + 1, status()).busy_s == SILENCE_S + 1


def test_an_owner_whose_thread_is_gone_is_dead():
    now = after(0.0, status(alive=False))
    assert (now.state, now.alive) == (WorkerState.DEAD, False)


@pytest.mark.parametrize("sent", [None, [], ["running"], [0.0, "merry", 0, 0, 0, None, None, None, None, 1]])
def test_anything_else_is_refused(sent):
    with pytest.raises(FrameError):
        heard(sent)
