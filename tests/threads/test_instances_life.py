"""Several worker threads that serve one queue: their start, their jobs, their end."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from support.callers import Callers, all_at_once
from support.core import Listener
from support.gates import AskedInbox, Gates, two
from support.models import GUARD_S
from support.parking import GRACE_S, CountingInbox, Parking

from service.batching.admission import WorkerState
from service.errors import WorkerDead


def test_the_death_of_one_thread_is_the_death_of_the_batcher_and_everyone_is_told() -> None:
    def act(rows: list[Any]) -> list[Any]:
        if "kill" in rows:
            raise SystemExit
        return list(rows)

    model, inbox, callers, listener = Gates(act), CountingInbox(), Callers(), Listener()
    batcher = two(model, inbox=inbox, listener=listener)
    batcher.start()
    callers.start(lambda: batcher.submit(["slow"]))
    model.wait_for("slow")
    callers.start(lambda: batcher.submit(["kill"]))
    model.wait_for("slow", "kill")
    callers.start(lambda: batcher.submit(["queued"]))
    inbox.wait_for_requests(3)
    callers.start(lambda: batcher.call(lambda: "a job"))
    model.let_go("kill")
    outcomes = callers.finish()
    assert all(isinstance(outcome, WorkerDead) for outcome in outcomes), outcomes
    assert batcher.status().state is WorkerState.DEAD
    assert not batcher.status().alive
    model.let_go("all")
    assert batcher.close(), "the other thread ends too"
    assert [type(death) for death in listener.deaths] == [SystemExit]
    assert ["queued"] not in model.seen


def test_two_threads_that_die_are_one_death() -> None:
    ends = threading.Barrier(2, timeout=GUARD_S)

    def model(rows: list[Any]) -> list[Any]:
        ends.wait()
        raise SystemExit

    listener = Listener()
    batcher = two(model, listener=listener)
    batcher.start()
    outcomes = all_at_once([lambda row=row: batcher.submit([row]) for row in "ab"])
    assert all(isinstance(outcome, WorkerDead) for outcome in outcomes)
    assert batcher.close()
    assert len(listener.deaths) == 1


def test_a_thread_that_waits_for_work_is_told_of_the_death_of_the_other() -> None:
    def act(rows: list[Any]) -> list[Any]:
        raise SystemExit

    model, inbox, callers = Gates(act), AskedInbox(), Callers()
    batcher = two(model, inbox=inbox)
    batcher.start()
    callers.start(lambda: batcher.submit(["kill"]))
    model.wait_for("kill")
    for _ in range(2):  # the one that has the batch, and the one that leads now
        assert inbox.asked.acquire(timeout=GUARD_S)
    model.let_go("kill")
    assert isinstance(callers.finish()[0], WorkerDead)
    # No close, which would wake it: a thread that goes on to wait is found by the fixture.


def test_close_answers_everything_and_what_is_to_be_freed_is_freed_once_when_no_batch_runs() -> None:
    model, inbox, callers = Gates(), CountingInbox(), Callers()
    freed: list[int] = []
    batcher = two(model, inbox=inbox, on_stop=lambda: freed.append(len(model.inside)))
    batcher.start()
    for row in range(6):
        callers.start(lambda row=row: batcher.submit([row]))
        if row < 2:
            model.wait_for(*range(row + 1))
    inbox.wait_for_requests(6)
    callers.start(batcher.close)
    model.let_go(*range(1, 6))
    deadline = time.monotonic() + GUARD_S
    while len(callers.outcomes) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert freed == [], "one batch runs still"
    assert batcher.status().alive
    model.let_go("all")
    assert callers.finish() == [*([row] for row in range(6)), True]
    assert freed == [0]
    assert batcher.status().state is WorkerState.STOPPED


def test_close_has_one_time_limit_for_all_threads() -> None:
    model, callers = Gates(), Callers()
    batcher = two(model)
    batcher.start()
    for row in "ab":
        callers.start(lambda row=row: batcher.submit([row]))
    model.wait_for("a", "b")
    began = time.monotonic()
    assert batcher.close(1.0) is False
    assert 1.0 <= time.monotonic() - began < 1.9  # one limit for each would be 2
    assert all(isinstance(outcome, WorkerDead) for outcome in callers.finish())
    model.let_go("all")
    assert batcher.close()


def test_a_thread_cannot_close_the_batcher_and_wait_for_itself_or_ask_it() -> None:
    seen: list[object] = []

    def model(rows: list[Any]) -> list[Any]:
        with pytest.raises(RuntimeError, match="wait for itself"):
            batcher.submit(["inner"])
        seen.append(batcher.close())
        return list(rows)

    batcher = two(model)
    batcher.start()
    assert batcher.submit(["a"]) == ["a"]
    assert batcher.close()
    assert seen == [False]


def test_a_job_waits_for_the_batches_of_all_threads_and_keeps_new_ones_out() -> None:
    model, inbox, callers, job = Gates(), CountingInbox(), Callers(), Parking()
    inside: list[int] = []

    def run() -> str:
        inside.append(len(model.inside))
        job.stop_here()
        inside.append(len(model.inside))
        return threading.current_thread().name

    with two(model, inbox=inbox) as batcher:
        for row in "ab":
            callers.start(lambda row=row: batcher.submit([row]))
        model.wait_for("a", "b")
        callers.start(lambda: batcher.call(run))
        model.let_go("a")
        assert not job.parked.wait(GRACE_S), "a batch is in the model"
        model.let_go("b")
        assert job.parked.wait(GUARD_S)
        callers.start(lambda: batcher.submit(["c"]))
        inbox.wait_for_requests(3)
        assert batcher.status().busy_instances == 0
        job.go.set()
        model.wait_for("c")
        model.let_go("all")
        outcomes = callers.finish()
    assert inside == [0, 0]
    assert outcomes[2].startswith("jitney-worker-")


def test_a_job_that_waited_for_a_thread_that_died_does_not_take_place() -> None:
    def act(rows: list[Any]) -> list[Any]:
        raise SystemExit

    model, callers, ran = Gates(act), Callers(), []
    batcher = two(model)
    batcher.start()
    callers.start(lambda: batcher.submit(["kill"]))
    model.wait_for("kill")
    batcher.post(lambda: ran.append("job"))
    assert not threading.Event().wait(GRACE_S)  # the other thread has taken the job, and waits
    model.let_go("kill")
    callers.finish()
    assert batcher.close()
    assert ran == []


def test_the_start_is_made_once_and_nobody_serves_before_it_has_ended() -> None:
    parking, started = Parking(), []

    def on_start() -> None:
        started.append(threading.current_thread().name)
        parking.stop_here()

    batcher = two(lambda rows: list(rows), on_start=on_start)
    batcher.start()
    assert parking.parked.wait(GUARD_S)
    assert not batcher.wait_started(0.0)
    parking.go.set()
    assert batcher.wait_started(GUARD_S)
    assert batcher.submit([1]) == [1]
    assert batcher.close()
    assert started == ["jitney-worker-0"]


def test_a_start_that_fails_ends_all_threads() -> None:
    def on_start() -> None:
        raise ValueError("no model")

    batcher = two(lambda rows: list(rows), on_start=on_start)
    batcher.start()
    assert batcher.wait_started(GUARD_S)
    assert batcher.close()
    assert batcher.status().state is WorkerState.DEAD


def test_a_close_during_the_start_ends_all_threads() -> None:
    parking, callers = Parking(), Callers()
    batcher = two(lambda rows: list(rows), on_start=parking.stop_here)
    batcher.start()
    assert parking.parked.wait(GUARD_S)
    callers.start(batcher.close)
    assert not threading.Event().wait(0.05)
    parking.go.set()
    assert callers.finish() == [True]
    assert batcher.status().state is WorkerState.STOPPED


def test_where_one_thread_cannot_be_started_the_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "jitney-worker-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    batcher = two(lambda rows: list(rows))
    with pytest.raises(RuntimeError, match="new thread"):
        batcher.start()
    assert batcher.status().state is WorkerState.DEAD
    # Without a close, as above.
