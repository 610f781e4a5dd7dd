"""A front end's batcher and the owner's, in one process, with a real socket between them."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import numpy as np
import pytest
from support.callers import Callers, all_at_once
from support.models import GUARD_S
from support.sharing import Gate, Heard, OwnerAtHand, front_end, wait_until, with_one_in_the_model

from loaders.errors import ModelLoadError
from service.batching.admission import WorkerState
from service.batching.batcher import ThreadedBatcher
from service.batching.course import Course
from service.batching.tickets import Priority
from service.errors import (
    ClientGone,
    DeadlineExceeded,
    Draining,
    ModelFailed,
    NotReady,
    OutputCountMismatch,
    PredictionFailed,
    QueueFull,
    WorkerDead,
)
from service.sharing.frames import FrameKind


def test_every_caller_gets_its_own_answer_with_what_is_known_of_its_batch(both):
    pair = both()
    answers = all_at_once([lambda number=number: pair.ask(number, number + 0.5) for number in range(100, 140)])
    for number, answer in zip(range(100, 140), answers, strict=True):
        assert [result.tolist() for result in answer.results] == [[2.0 * number], [2.0 * number + 1]]
        assert [info.size >= 1 and info.model_s >= 0 for info in answer.batches] == [True, True]
        assert answer.queue_s >= 0
    told = [info.batch_id for info in pair.heard.batches]
    assert len(told) == len(set(told)), "a batch is told of once"
    assert sum(info.size for info in pair.heard.batches) == 80


def test_rows_of_several_front_ends_share_batches(both, place):
    pair = both()
    pair.gate.release.clear()
    other_heard = Heard()
    other = front_end(place, other_heard)
    other.start()
    pair.owner.accept()
    assert other.wait_started(GUARD_S)
    callers = Callers()
    callers.start(lambda: pair.ask(1))
    assert pair.gate.started.acquire(timeout=GUARD_S)
    callers.start(lambda: pair.ask(2))
    callers.start(lambda: other.ask([np.array([3.0])], GUARD_S, key=(other_heard.models[-1], (), ("f", 1))))
    wait_until(lambda: pair.owner.batcher.queued == 2)
    pair.gate.release.set()
    assert [answer.results[0].tolist() for answer in callers.finish()] == [[2.0], [4.0], [6.0]]
    assert [len(batch) for batch in pair.gate.batches] == [1, 2]
    other.close()


def test_a_bad_row_fails_its_own_caller_with_the_class_and_words_of_the_batcher(both):
    pair = both()
    callers = with_one_in_the_model(pair)
    callers.start(lambda: pair.ask(2, 13))
    callers.start(lambda: pair.ask(3))
    wait_until(lambda: pair.owner.batcher.queued == 3)
    pair.gate.release.set()
    one, failed, three = callers.finish()
    assert (one.results[0].tolist(), three.results[0].tolist()) == ([2.0], [6.0])
    assert type(failed) is ModelFailed
    assert (str(failed), failed.rows) == ("the model failed on this input", (1,))


def test_the_batch_that_a_row_failed_in_is_told_to_its_caller(both):
    pair, course = both(max_batch_size=1), Course()
    with pytest.raises(ModelFailed):
        pair.ask(2, 13, course=course)
    first, second = course.batches
    assert (course.rows, course.failure, course.failed) == (2, "model", {second.batch_id})
    assert course.enqueued_at <= first.started_at <= course.queue_ended_at == second.started_at <= course.left_at
    pair.ask(3, course=(answered := Course()))
    assert ([info.size for info in answered.batches], answered.failure) == ([1], None)


def test_of_a_request_that_gives_up_it_is_not_known_how_far_it_came(both):
    pair, course = both(), Course()
    callers = with_one_in_the_model(pair)
    with pytest.raises(DeadlineExceeded):
        pair.front.ask([np.array([2.0])], 0.05, key=pair.key, course=course)
    assert course == Course()
    pair.gate.release.set()
    callers.finish()


def test_the_owner_hears_where_the_requests_of_its_front_ends_come_from(both):
    heard: list[list[object]] = []
    pair = both(on_origins=lambda _info, _key, origins, _errors: heard.append(origins))
    callers = with_one_in_the_model(pair)
    callers.start(lambda: pair.ask(2, 3, origin="left"))
    wait_until(lambda: pair.owner.batcher.queued == 2)
    callers.start(lambda: pair.ask(4))
    wait_until(lambda: pair.owner.batcher.queued == 3)
    pair.gate.release.set()
    callers.finish()
    wait_until(lambda: len(heard) == 2)
    assert heard == [[None], ["left", "left", None]]


def test_a_wrong_number_of_results_is_the_owners_fault(both):
    with pytest.raises(OutputCountMismatch, match="0 results for 1 rows"):
        both().ask(14)


def test_a_full_queue_is_the_owners_and_tells_when_to_come_again(both):
    pair = both(max_queue_size=2)
    callers = with_one_in_the_model(pair)
    callers.start(lambda: pair.ask(2, 3))
    wait_until(lambda: pair.owner.batcher.queued == 2)
    with pytest.raises(QueueFull) as refused:
        pair.ask(4)
    assert (refused.value.rows, refused.value.queued, refused.value.limit) == (1, 2, 2)
    assert refused.value.retry_after_s >= 0
    pair.gate.release.set()
    callers.finish()


def test_a_deadline_is_noticed_here_and_the_rows_never_reach_the_model(both):
    pair = both()
    callers = with_one_in_the_model(pair)
    with pytest.raises(DeadlineExceeded):
        pair.front.ask([np.array([2.0])], 0.05, key=pair.key)
    wait_until(lambda: pair.owner.batcher.queued == 0)
    pair.gate.release.set()
    callers.finish()
    assert pair.ask(3).results[0].tolist() == [6.0]
    assert [[float(row[0]) for row in batch] for batch in pair.gate.batches] == [[1.0], [3.0]]


def test_a_client_that_leaves_withdraws_its_rows(both):
    pair = both()
    callers = with_one_in_the_model(pair)
    gone = threading.Event()
    callers.start(lambda: pair.ask(2, is_gone=gone.is_set))
    wait_until(lambda: pair.owner.batcher.queued == 1)
    gone.set()
    wait_until(lambda: pair.owner.batcher.queued == 0)
    pair.gate.release.set()
    assert isinstance(callers.finish()[1], ClientGone)


def test_the_end_of_the_owner_answers_everyone_at_once_and_the_next_one_serves(both, place):
    pair = both()
    pair.gate.release.clear()
    callers = Callers()
    for number in range(5):
        callers.start(lambda number=number: pair.ask(number))
    assert pair.gate.started.acquire(timeout=GUARD_S)
    wait_until(lambda: repr(pair.front).count("pending=5") == 1)
    began = time.monotonic()
    pair.peer._connection.shutdown(socket.SHUT_RDWR)
    failed = callers.finish()
    assert time.monotonic() - began < 1.0
    assert {(type(error), str(error)) for error in failed} == {
        (WorkerDead, "the process that owns the model ended before it answered")
    }
    assert pair.front.status().state is WorkerState.STARTING
    with pytest.raises(WorkerDead, match="being replaced"):
        pair.ask(7)
    pair.gate.release.set()
    old_key = pair.key
    pair.owner.accept()
    wait_until(lambda: len(pair.heard.models) == 2)
    wait_until(lambda: pair.front.status().state is WorkerState.RUNNING)
    assert pair.ask(7).results[0].tolist() == [14.0]
    with pytest.raises(WorkerDead):
        pair.ask(7, key=old_key)


def test_the_end_of_a_front_end_withdraws_its_rows_alone(both, place):
    pair = both()
    pair.gate.release.clear()
    other_heard = Heard()
    other = front_end(place, other_heard)
    other.start()
    other_peer = pair.owner.accept()
    assert other.wait_started(GUARD_S)
    callers = Callers()
    callers.start(lambda: pair.ask(1))
    assert pair.gate.started.acquire(timeout=GUARD_S)
    callers.start(lambda: pair.ask(2))
    callers.start(lambda: other.ask([np.array([3.0])], GUARD_S, key=(other_heard.models[-1], (), ("f", 1))))
    wait_until(lambda: pair.owner.batcher.queued == 2)
    other.close(0.0)
    wait_until(lambda: other_peer not in pair.owner.peers)
    assert pair.owner.batcher.queued == 1
    pair.gate.release.set()
    one, two, three = callers.finish()
    assert (one.results[0].tolist(), two.results[0].tolist()) == ([2.0], [4.0])
    assert isinstance(three, WorkerDead)


def test_close_waits_for_the_answers_and_takes_nothing_new(both):
    pair = both()
    callers = with_one_in_the_model(pair)
    callers.start(lambda: pair.front.close(GUARD_S))
    wait_until(lambda: pair.front.status().state is WorkerState.DRAINING)
    with pytest.raises(Draining):
        pair.ask(2)
    pair.gate.release.set()
    answer, all_came = callers.finish()
    assert answer.results[0].tolist() == [2.0]
    assert all_came is True
    assert pair.front.status().state is WorkerState.STOPPED


def test_nothing_is_asked_before_the_owner_has_a_model(place):
    heard = Heard()
    owner = OwnerAtHand(place, Gate())
    front = front_end(place, heard)
    front.start()
    peer = owner.accept(introduce=False)
    with pytest.raises(NotReady, match="still loading"):
        front.ask([np.array([1.0])], key=(owner.handle, (), ()))
    assert front.status().state is WorkerState.STARTING
    owner.introduce(peer)
    assert front.wait_started(GUARD_S)
    assert front.status().state is WorkerState.RUNNING
    front.close()
    owner.close()


def test_a_load_that_failed_is_told_as_it_was(place):
    heard = Heard()
    owner = OwnerAtHand(place, Gate())
    front = front_end(place, heard)
    front.start()
    owner.accept(introduce=False).tell(FrameKind.FAILED, ["ModelLoadError", "it is no model"])
    assert front.wait_started(GUARD_S)
    assert [(type(error), str(error)) for error in heard.errors] == [(ModelLoadError, "it is no model")]
    assert front.status().state is WorkerState.DEAD
    front.close()
    owner.close()


def test_rows_that_cannot_be_sent_fail_their_own_caller(both):
    pair = both()
    with pytest.raises(PredictionFailed, match="cannot be sent"):
        pair.front.ask([object()], GUARD_S, key=pair.key)
    assert pair.ask(1).results[0].tolist() == [2.0]


def test_what_is_wrong_with_a_request_is_found_on_its_own_thread(both):
    pair = both()
    with pytest.raises(ValueError):
        pair.ask(1, lengths=[0])
    with pytest.raises(ValueError):
        pair.ask(1, priority=9)
    assert pair.ask(priority=Priority.LOW).results == []


def test_an_owner_that_falls_silent_looks_busy(both):
    pair = both()
    wait_until(lambda: pair.front.status().state is WorkerState.RUNNING)
    assert pair.front.status().busy_s == 0
    pair.front._heard = pair.front._heard._replace(at=time.monotonic() - 100)
    assert pair.front.status().busy_s >= 100


def test_only_the_services_user_can_reach_the_place(place):
    directory = os.path.dirname(place.address)
    assert os.stat(directory).st_mode & 0o777 == 0o700


class AnswersBeforeItReturns:
    """A door where a request is over before whoever let it in knows."""

    def __init__(self, batcher: ThreadedBatcher) -> None:
        self._batcher = batcher
        self.announce = batcher.announce
        self.leave = batcher.leave

    def enter(self, rows: Any, timeout_s: float, **more: Any) -> Any:
        ticket = self._batcher.enter(rows, timeout_s, **more)
        assert more["done"].wait(GUARD_S)
        time.sleep(0.1)  # the sender has looked for it, and passed over it
        return ticket


def test_an_answer_that_comes_before_the_request_is_known_is_sent(both):
    pair = both()
    pair.peer._door = lambda: AnswersBeforeItReturns(pair.owner.batcher)
    assert pair.ask(1).results[0].tolist() == [2.0]


def test_a_result_that_has_no_form_fails_its_own_caller(both):
    pair = both()
    callers = with_one_in_the_model(pair)
    callers.start(lambda: pair.ask(15))
    callers.start(lambda: pair.ask(3))
    wait_until(lambda: pair.owner.batcher.queued == 2)
    pair.gate.release.set()
    _, failed, three = callers.finish()
    assert type(failed) is ModelFailed
    assert "of type object, which JSON cannot hold" in str(failed)
    assert three.results[0].tolist() == [6.0]


def test_a_batch_whose_requests_are_answered_one_after_the_other_is_told_of_once(by_hand):
    owner, front, key = by_hand
    callers = Callers()
    numbers: list[int] = []
    for _ in range(2):
        callers.start(lambda: front.ask([np.array([1.0])], GUARD_S, key=key))
        numbers += owner.asked()
    info = [1, 2, "size", time.monotonic(), 0.1, 1, 2, 1]
    for number in numbers:
        owner.tell(FrameKind.ANSWER, [[[number, [0]]], [info], [], ["plain", [1.0]]])
    assert [answer.batches[0].size for answer in callers.finish()] == [2, 2]
    wait_until(lambda: len(front._batches_known) == 1)
    owner.tell_state(WorkerState.RUNNING)
    wait_until(lambda: front._heard.at > info[3])
    assert [told.batch_id for told in front._listener.batches] == [1]
