"""Functions that run on the worker thread, between two batches."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from support.callers import Callers
from support.models import GUARD_S

from service.batching.batcher import ThreadedBatcher
from service.errors import DeadlineExceeded, Draining, NotReady, WorkerDead


def test_a_job_runs_on_the_worker_thread_and_gives_back_what_it_returns() -> None:
    with ThreadedBatcher(lambda rows: rows, name="m") as batcher:
        assert batcher.call(lambda: threading.current_thread().name) == "m-worker"
        assert batcher.submit([1]) == [1]


def test_what_a_job_raises_reaches_its_caller_and_not_the_worker() -> None:
    def fail() -> None:
        raise ValueError("no")

    with ThreadedBatcher(lambda rows: rows) as batcher:
        with pytest.raises(ValueError, match="no"):
            batcher.call(fail)
        assert batcher.submit([1]) == [1]
        assert batcher.status().alive


def test_a_job_never_runs_while_a_batch_is_in_the_model() -> None:
    inside = threading.Event()
    release = threading.Event()
    seen: list[str] = []

    def predict(rows: list[object]) -> list[object]:
        inside.set()
        assert release.wait(GUARD_S)
        seen.append("batch")
        return rows

    with ThreadedBatcher(predict, max_batch_latency_s=0.0) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.submit([1]))
        assert inside.wait(GUARD_S)
        callers.start(lambda: batcher.call(lambda: seen.append("job")))
        release.set()
        callers.finish()
    assert seen == ["batch", "job"]


def test_whoever_waits_for_a_job_is_told_when_the_worker_dies() -> None:
    def die() -> None:
        raise SystemExit

    with ThreadedBatcher(lambda rows: rows) as batcher, pytest.raises(WorkerDead):
        batcher.call(die)


def test_a_caller_waits_for_a_job_no_longer_than_it_wants_to() -> None:
    release = threading.Event()
    with ThreadedBatcher(lambda rows: rows) as batcher:
        with pytest.raises(DeadlineExceeded):
            batcher.call(lambda: release.wait(GUARD_S), timeout_s=0.05)
        release.set()
        assert batcher.call(lambda: "next") == "next"


def test_no_job_is_taken_before_the_start_and_after_the_end() -> None:
    batcher = ThreadedBatcher(lambda rows: rows)
    with pytest.raises(NotReady):
        batcher.call(lambda: None)
    batcher.start()
    assert batcher.close()
    with pytest.raises(Draining):
        batcher.call(lambda: None)


def test_a_job_that_was_taken_is_done_before_the_batcher_closes() -> None:
    inside = threading.Event()
    release = threading.Event()

    def first() -> None:
        inside.set()
        assert release.wait(GUARD_S)

    with ThreadedBatcher(lambda rows: rows) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.call(first))
        assert inside.wait(GUARD_S)
        callers.start(lambda: batcher.call(lambda: "second"))
        wait_until(lambda: len(batcher._admission.jobs) == 2)
        callers.start(batcher.close)
        release.set()
        assert callers.finish()[1:] == ["second", True]


class Held:
    """A job that says when it has begun, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.release.wait(GUARD_S)


def wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if holds():
            return
        pause.wait(0.005)
    pytest.fail("it did not come true")


def test_rows_that_come_while_a_job_runs_share_the_batch_after_it() -> None:
    sizes: list[int] = []
    batch, job = Held(), Held()

    def predict(rows: list[object]) -> list[object]:
        sizes.append(len(rows))
        if len(sizes) == 1:
            batch()
        return rows

    with ThreadedBatcher(predict, max_batch_latency_s=0.0) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.submit(["first"]))
        assert batch.begun.wait(GUARD_S)
        # The worker will find these two in its inbox together; the row is due at once, the job runs first.
        callers.start(lambda: batcher.submit([0]))
        callers.start(lambda: batcher.call(job))
        wait_until(lambda: batcher.status().queued == 1 and len(batcher._admission.jobs) == 1)
        batch.release.set()
        assert job.begun.wait(GUARD_S)
        callers.start(lambda: batcher.submit([1]))
        wait_until(lambda: batcher.status().queued == 2)
        job.release.set()
        callers.finish()
    assert sizes == [1, 2]


def test_nobody_waits_for_a_job_that_was_posted_and_its_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        done.set()
        raise ValueError("nobody hears this")

    with ThreadedBatcher(lambda rows: rows) as batcher:
        batcher.post(fail)
        assert done.wait(GUARD_S)
        assert batcher.submit([1]) == [1]
    assert "a job of the inference worker failed" in caplog.text
    assert "nobody hears this" in caplog.text


def test_jobs_and_batches_take_turns() -> None:
    seen: list[object] = []
    posted = threading.Event()

    def predict(rows: list[object]) -> list[object]:
        seen.extend(rows)
        return rows

    with ThreadedBatcher(predict, max_batch_size=1, max_batch_latency_s=0.0) as batcher:
        callers = Callers()
        batcher.post(lambda: posted.wait(GUARD_S))
        for row in range(3):
            callers.start(lambda row=row: batcher.submit([row]))
        wait_until(lambda: batcher.status().queued == 3)
        for _ in range(4):
            batcher.post(lambda: seen.append("job"))
        posted.set()
        callers.finish()
        batcher.call(lambda: None)
    assert seen[1::2] == ["job"] * 3, "a row waits for one job at most"


def test_a_job_that_runs_now_shows_in_the_status() -> None:
    inside = threading.Event()
    release = threading.Event()

    def job() -> None:
        inside.set()
        assert release.wait(GUARD_S)

    clock_s = [0.0]
    with ThreadedBatcher(lambda rows: rows, clock=lambda: clock_s[0]) as batcher:
        assert batcher.status().job_s == 0.0
        batcher.post(job)
        assert inside.wait(GUARD_S)
        clock_s[0] = 5.0
        assert (batcher.status().job_s, batcher.status().busy_s) == (5.0, 0.0)
        release.set()
        batcher.call(lambda: None)
        assert batcher.status().job_s == 0.0


def test_the_status_can_count_the_rows_of_some_keys_only() -> None:
    release = threading.Event()
    with ThreadedBatcher(lambda rows, key: rows) as batcher:
        callers = Callers()
        batcher.post(lambda: release.wait(GUARD_S))
        callers.start(lambda: batcher.submit([1, 2], key="a"))
        callers.start(lambda: batcher.submit([3], key="b"))
        wait_until(lambda: batcher.status().queued == 3)
        assert [batcher.status(key.__eq__).queued for key in ("a", "b", "c")] == [2, 1, 0]
        assert batcher.status("c".__eq__).oldest_wait_s == 0.0
        release.set()
        callers.finish()
