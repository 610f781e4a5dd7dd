"""Who may enter, what is counted, and what becomes of rows whose callers have left."""

from __future__ import annotations

from typing import Any

import pytest
from support.core import Core, error_of
from support.inbox import FakeInbox

from service.batching.admission import WorkerState
from service.batching.policy import BatchPolicy
from service.errors import Draining, NotReady, QueueFull, WorkerDead


def test_the_queue_limit_counts_rows_and_not_requests() -> None:
    core = Core(max_queue_size=5)
    core.submit([1, 2, 3])
    core.submit([4, 5])
    error = error_of(lambda: core.submit([6]))
    assert isinstance(error, QueueFull)
    assert (error.rows, error.queued, error.limit, error.retry_after_s) == (1, 5, 5, 5.0)


def test_a_request_enters_whole_or_not_at_all() -> None:
    core = Core(max_queue_size=5, max_batch_size=8)
    core.submit([1, 2, 3])
    assert isinstance(error_of(lambda: core.submit([4, 5, 6])), QueueFull)
    assert core.admission.queued == 3
    core.submit([7, 8])
    core.run()
    assert core.model.seen == [1, 2, 3, 7, 8]
    core.assert_at_rest()


def test_there_is_room_again_as_soon_as_a_batch_has_taken_rows() -> None:
    core = Core(max_queue_size=4, max_batch_size=4, service_s=8.0)
    core.submit_at(0.0, [1, 2, 3, 4])
    core.submit_at(1.0, [5, 6, 7, 8])  # the first four are in the model
    core.run()
    assert core.model.sizes == [4, 4]


def test_there_is_room_again_as_soon_as_a_caller_leaves() -> None:
    core = Core(max_queue_size=4)
    ticket = core.submit([1, 2, 3, 4])
    assert core.give_up(ticket)
    assert core.admission.queued == 0
    core.submit([5, 6, 7, 8])
    core.run()
    assert core.model.seen == [5, 6, 7, 8]
    core.assert_at_rest()


def test_leaving_twice_frees_the_room_once() -> None:
    core = Core()
    ticket = core.submit([1, 2])
    core.submit([3])
    assert core.give_up(ticket)
    assert core.give_up(ticket)
    assert (core.admission.queued, core.admission.abandons) == (1, 1)


def test_a_caller_whose_answer_is_there_cannot_leave_any_more() -> None:
    core = Core()
    ticket = core.submit([1])
    core.run()
    assert not core.give_up(ticket)
    assert core.outcome(ticket) == [1]


def test_a_caller_that_leaves_while_its_rows_are_in_the_model_changes_no_count() -> None:
    core = Core(max_batch_size=2, service_s=4.0)
    core.submit_at(0.0, [1, 2, 3], timeout_s=2.0)
    core.run()
    assert core.model.seen == [1, 2]
    core.assert_at_rest()


def test_rows_that_expired_in_the_queue_never_reach_the_model() -> None:
    core = Core(max_batch_size=2, latency_s=1.0, service_s=16.0)
    core.submit_at(0.0, ["a", "b"])
    core.submit_at(1.0, ["hasty"], timeout_s=4.0)
    core.submit_at(2.0, ["patient"])
    core.run()
    assert core.model.seen == ["a", "b", "patient"]


def test_a_row_whose_deadline_passes_is_left_out_although_its_waiter_has_not_woken_yet() -> None:
    core = Core(max_batch_size=2, latency_s=4.0)
    ticket = core.submit(["late"], timeout_s=1000.0)
    ticket.deadline = 4.0  # due and expired at the same moment; the waiter is slow
    core.submit_at(5.0, ["next"])
    core.run()
    assert core.model.seen == ["next"]


def test_rows_that_left_do_not_make_a_batch_look_full() -> None:
    core = Core(max_batch_size=4, latency_s=8.0)
    core.submit_at(0.0, ["a", "b", "c"], timeout_s=2.0)
    core.submit_at(3.0, ["d", "e"])
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(11.0, ["d", "e"])]


def test_a_caller_that_left_before_the_worker_looked_is_forgotten() -> None:
    core = Core(max_batch_size=4, latency_s=8.0)
    gone = core.submit(["gone"] * 3)
    core.submit(["here"])
    core.give_up(gone)
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(8.0, ["here"])]


def test_a_caller_that_came_and_left_between_two_looks_of_the_worker_is_never_counted_as_company() -> None:
    class FleetingInbox(FakeInbox):
        """Somebody comes just after the worker has emptied it, and leaves before it does so again."""

        def drain(self) -> list[Any]:
            items = super().drain()
            if fleeting:
                core.give_up(fleeting.pop()())
            return items

    core = Core(max_batch_size=4, latency_s=8.0, inbox=FleetingInbox)
    core.submit(["here"])
    fleeting = [lambda: core.submit(["gone"] * 3)]
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(8.0, ["here"])]


def test_the_payload_of_a_caller_that_left_is_let_go_although_the_worker_has_not_seen_it() -> None:
    core = Core()
    ticket = core.submit([bytearray(10)])
    core.give_up(ticket)
    assert not ticket.rows
    assert core.inbox.qsize() == 1


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (WorkerState.DRAINING, Draining),
        (WorkerState.STOPPED, Draining),
        (WorkerState.DEAD, WorkerDead),
    ],
)
def test_the_door_closes_for_good(state: WorkerState, error: type[Exception]) -> None:
    core = Core()
    assert core.admission.advance(state)
    assert type(error_of(lambda: core.submit([1]))) is error
    assert not core.admission.advance(WorkerState.RUNNING)
    assert (core.admission.queued, core.admission.outstanding, core.inbox.qsize()) == (0, {}, 0)


def test_nobody_enters_before_the_model_is_ready() -> None:
    from service.batching.admission import Admission
    from service.batching.tickets import Ticket

    core = Core()
    admission = Admission(core.inbox, 10, counts_arrivals=False)
    ticket = Ticket.of([1], [1], key=None, deadline=1.0)
    assert isinstance(error_of(lambda: admission.admit(ticket, None, float)), NotReady)


def test_a_dead_worker_is_named_with_its_cause() -> None:
    core = Core()
    cause = ValueError("why")
    core.admission.advance(WorkerState.DEAD, cause=cause)
    assert error_of(lambda: core.submit([1])).__cause__ is cause


def test_an_arrival_is_counted_once_however_often_it_is_released() -> None:
    core = Core(policy=BatchPolicy.EAGER)
    first, second = core.admission.announce(), core.admission.announce()
    first.release()
    first.release()
    assert core.admission.on_the_way == 1
    core.submit([1], arrival=second)
    second.release()
    assert core.admission.on_the_way == 0


def test_everyone_inside_is_answered_with_an_error_of_its_own() -> None:
    core = Core()
    tickets = [core.submit([row]) for row in range(3)]
    cause = RuntimeError("the end")
    core.admission.advance(WorkerState.DEAD, cause=cause)
    core.admission.fail_everyone("the worker has ended", cause)
    errors = [core.outcome(ticket) for ticket in tickets]
    assert all(isinstance(error, WorkerDead) and error.__cause__ is cause for error in errors)
    assert len({id(error) for error in errors}) == 3
    assert core.admission.queued == 0


def test_a_worker_that_comes_back_after_everyone_was_failed_serves_none_of_them() -> None:
    core = Core(max_batch_size=2, service_s=4.0)
    tickets = [core.submit([row]) for row in range(6)]

    def close_in_vain() -> None:
        core.admission.advance(WorkerState.DEAD)
        core.admission.fail_everyone("closed")

    core.clock.at(2.0, close_in_vain)
    core.run()
    assert core.model.seen == [0, 1]
    assert all(isinstance(core.outcome(ticket), WorkerDead) for ticket in tickets)
    assert core.admission.state is WorkerState.DEAD
    core.assert_at_rest()
