"""Whoever asks may learn how far its request came, whatever became of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.callers import Callers
from support.models import GUARD_S, GatedModel

from service.batching.batcher import ThreadedBatcher
from service.batching.course import Course
from service.errors import ClientGone, DeadlineExceeded, ModelFailed, QueueFull, WorkerDead


def test_a_request_that_is_answered_came_all_the_way() -> None:
    course = Course()
    with ThreadedBatcher(list, max_batch_latency_s=0.0, max_batch_size=2) as batcher:
        answer = batcher.ask([1, 2, 3], course=course)
    assert (course.rows, course.enqueued_at, course.failure) == (3, answer.enqueued_at, None)
    assert course.queue_ended_at == answer.enqueued_at + answer.queue_s
    assert [info.size for info in course.batches] == [2, 1]
    assert (course.failed, course.is_running) == (frozenset(), False)


def test_rows_that_fail_tell_in_which_batch() -> None:
    def fails_on_two(rows: list[Any]) -> list[Any]:
        if 2 in rows:
            raise ValueError("no")
        return rows

    course = Course()
    with ThreadedBatcher(fails_on_two, max_batch_latency_s=0.0, max_batch_size=1) as batcher:
        with pytest.raises(ModelFailed):
            batcher.ask([1, 2], course=course)
        assert batcher.submit([3]) == [3]
    assert (course.failure, [info.batch_id for info in course.batches]) == ("model", [1, 2])
    assert course.failed == {2}
    assert not course.is_running


@pytest.mark.parametrize(("leaves", "failure"), [(False, "DeadlineExceeded"), (True, "ClientGone")])
@pytest.mark.parametrize("is_in_batch", [False, True])
def test_one_that_gives_up_waited_or_was_in_a_batch(leaves: bool, failure: str, is_in_batch: bool) -> None:
    model, callers, course = GatedModel(), Callers(), Course()
    gone = model.started.is_set if is_in_batch else lambda: True
    with ThreadedBatcher(model, max_batch_latency_s=0.0, max_batch_size=1) as batcher:
        if not is_in_batch:
            callers.start(lambda: batcher.submit(["first"]))
            assert model.started.wait(GUARD_S)
        with pytest.raises(ClientGone if leaves else DeadlineExceeded):
            batcher.ask(["late"], 0.5 if not leaves else GUARD_S, is_gone=gone if leaves else None, course=course)
        model.release.set()
        callers.finish()
    assert (course.failure, course.is_running, course.batches) == (failure, is_in_batch, [])
    assert course.enqueued_at is not None
    assert course.enqueued_at <= course.queue_ended_at <= course.left_at
    assert (course.queue_ended_at < course.left_at) == is_in_batch


def test_one_whose_rows_were_not_all_taken_was_waiting() -> None:
    model, callers, course = GatedModel(), Callers(), Course()
    with ThreadedBatcher(model, max_batch_latency_s=0.0, max_batch_size=1) as batcher:
        with pytest.raises(DeadlineExceeded):
            batcher.ask(["in the batch", "waits"], 0.3, course=course)
        model.release.set()
        callers.finish()
    assert not course.is_running
    assert course.queue_ended_at == course.left_at


def test_what_is_not_let_in_leaves_it_empty() -> None:
    course = Course()
    with ThreadedBatcher(list, max_queue_size=1) as batcher, pytest.raises(QueueFull):
        batcher.ask([1, 2], course=course)
    assert course == Course()


def test_a_worker_that_dies_was_running_the_batch() -> None:
    def dies(_: list[Any]) -> list[Any]:
        raise SystemExit

    course = Course()
    batcher = ThreadedBatcher(dies, max_batch_latency_s=0.0)
    batcher.start()
    with pytest.raises(WorkerDead):
        batcher.ask([1], course=course)
    assert (course.failure, course.is_running) == ("WorkerDead", True)
    batcher.close()


def test_a_failure_ends_it_whatever_its_other_rows_are_in() -> None:
    is_held, release, course = threading.Event(), threading.Event(), Course()

    def holds_or_fails(rows: list[Any]) -> list[Any]:
        if rows == ["held"]:
            is_held.set()
            assert release.wait(GUARD_S)
            return rows
        assert is_held.wait(GUARD_S)
        raise ValueError("no")

    with ThreadedBatcher(holds_or_fails, max_batch_latency_s=0.0, max_batch_size=1, instances=2) as batcher:
        with pytest.raises(ModelFailed):
            batcher.ask(["held", "bad"], course=course)
        release.set()
    assert (course.failure, course.is_running, len(course.failed)) == ("model", False, 1)
    assert course.failed == {info.batch_id for info in course.batches}
