"""Races that are made to happen: a thread is stopped between check and act while the other side acts."""

from __future__ import annotations

from typing import Any

import pytest
from support.callers import Callers
from support.models import GUARD_S, GatedModel
from support.parking import (
    GRACE_S,
    CountingInbox,
    Parking,
    ParkingClock,
    ParkingRows,
    ParkingScheduler,
    RefittingInbox,
    Turnstile,
)

from service.batching.admission import WorkerState
from service.batching.batcher import ThreadedBatcher
from service.batching.one_shot import OneShotEvent
from service.batching.schedulers import register_scheduler
from service.errors import ClientGone, DeadlineExceeded, WorkerDead

# A caller that nobody answers finds out after this long; a right answer comes far earlier.
HANGING_S = 3.0


def test_a_request_that_passed_the_door_before_close_is_answered() -> None:
    parking = Parking()
    batcher = ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.001, clock=ParkingClock("caller-0", 2, parking))
    batcher.start()
    callers = Callers()
    callers.start(lambda: batcher.submit(["just in time"], HANGING_S))
    assert parking.parked.wait(GUARD_S)
    callers.start(lambda: batcher.close())
    parking.go.wait(GRACE_S)  # close must not get past the request; without the lock it would be through by now
    parking.go.set()
    assert callers.finish() == [["just in time"], True]


def test_a_request_that_passed_the_door_before_the_workers_death_is_told() -> None:
    parking = Parking()
    gate = GatedModel()

    def model(rows: list[Any]) -> list[Any]:
        gate(rows)
        raise SystemExit

    batcher = ThreadedBatcher(model, max_batch_latency_s=0.0, clock=ParkingClock("caller-1", 2, parking))
    batcher.start()
    callers = Callers()
    callers.start(lambda: batcher.submit(["last"], HANGING_S))
    assert gate.started.wait(GUARD_S)
    callers.start(lambda: batcher.submit(["too late"], HANGING_S))
    assert parking.parked.wait(GUARD_S)
    gate.release.set()
    parking.go.wait(GRACE_S)  # the dying worker must not get past the request
    parking.go.set()
    outcomes = callers.finish()
    assert all(isinstance(outcome, WorkerDead) for outcome in outcomes), outcomes
    assert batcher.close()
    assert batcher.status().queued == 0


def test_a_result_that_comes_at_the_very_moment_of_the_timeout_is_handed_over() -> None:
    gate = GatedModel()
    tickets: list[Any] = []

    def answer_arrives() -> None:
        gate.release.set()
        assert OneShotEvent.wait(tickets[0].done, GUARD_S)

    def refit(ticket: Any) -> None:
        tickets.append(ticket)
        ticket.done = Turnstile(answer_arrives)

    with ThreadedBatcher(gate, max_batch_latency_s=0.0, inbox=RefittingInbox(refit)) as batcher:
        assert batcher.submit(["both at once"], 0.1) == ["both at once"]
        assert (batcher.status().queued, batcher._admission.abandons) == (0, 0)


def test_a_result_that_comes_after_the_waiter_has_left_reaches_nobody() -> None:
    gate = GatedModel()
    tickets: list[Any] = []
    with ThreadedBatcher(gate, max_batch_latency_s=0.0, inbox=RefittingInbox(tickets.append)) as batcher:
        with pytest.raises(DeadlineExceeded):
            batcher.submit(["late"], 0.05)
        gate.release.set()
        assert batcher.submit(["next"]) == ["next"]
        assert tickets[0].abandoned
        assert repr(batcher).startswith("<ThreadedBatcher 'jitney' running queued=0 inside=0")


def test_a_caller_that_leaves_between_choice_and_claim_is_not_run() -> None:
    parking = Parking()
    register_scheduler("parking", lambda: ParkingScheduler(parking))
    model = GatedModel()
    model.release.set()
    with ThreadedBatcher(model, max_batch_latency_s=0.0, scheduler="parking") as batcher:
        with pytest.raises(DeadlineExceeded):
            batcher.submit(["gone"], 0.1)
        assert parking.parked.wait(GUARD_S)
        parking.go.set()
        assert batcher.submit(["here"]) == ["here"]
        assert model.calls == [["here"]]
        assert batcher.status().queued == 0


def test_a_client_that_hangs_up_between_choice_and_claim_is_not_run() -> None:
    parking = Parking()
    register_scheduler("parking", lambda: ParkingScheduler(parking))
    model = GatedModel()
    model.release.set()
    with ThreadedBatcher(model, max_batch_latency_s=0.0, scheduler="parking") as batcher:
        with pytest.raises(ClientGone):
            batcher.ask(["gone"], is_gone=lambda: True)
        assert parking.parked.is_set()
        parking.go.set()
        assert batcher.submit(["here"]) == ["here"]
        assert model.calls == [["here"]]


def test_a_caller_that_leaves_in_the_middle_of_a_claim_is_counted_once() -> None:
    parking = Parking()
    model = GatedModel()

    def refit(ticket: Any) -> None:
        if not parking.parked.is_set():
            ticket.rows = ParkingRows(ticket.rows, parking)

    with ThreadedBatcher(model, max_batch_latency_s=0.0, inbox=RefittingInbox(refit)) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.submit(["torn"], 0.1))
        assert parking.parked.wait(GUARD_S)
        parking.go.wait(0.1 + GRACE_S)  # the deadline passes, and the caller runs into the lock
        parking.go.set()
        assert isinstance(callers.finish()[0], DeadlineExceeded)
        model.release.set()
        assert batcher.submit(["next"]) == ["next"]
        assert batcher.status().queued == 0
        assert batcher.status().state is WorkerState.RUNNING


def test_a_close_in_the_middle_of_a_start_stops_the_thread_that_is_being_started() -> None:
    parking = Parking()

    class SlowName(str):
        """Naming the thread takes its time: the start stops between its announcement and its thread."""

        def __format__(self, spec: str) -> str:
            parking.stop_here()
            return str(self)

    batcher = ThreadedBatcher(lambda rows: rows, name=SlowName("slow"))
    callers = Callers()
    callers.start(batcher.start)
    assert parking.parked.wait(GUARD_S)
    callers.start(batcher.close)
    parking.go.wait(GRACE_S)
    parking.go.set()
    assert callers.finish() == [None, True]
    assert batcher.status().state is WorkerState.STOPPED
    assert not batcher.status().alive


def test_a_dying_worker_and_a_closing_service_answer_each_caller_once() -> None:
    gate = GatedModel()

    def model(rows: list[Any]) -> list[Any]:
        gate(rows)
        raise SystemExit

    inbox = CountingInbox()
    batcher = ThreadedBatcher(model, max_batch_latency_s=0.0, max_batch_size=1, inbox=inbox)
    batcher.start()
    callers = Callers()
    for number in range(4):
        callers.start(lambda number=number: batcher.submit([number], HANGING_S))
    inbox.wait_for_requests(4)
    assert batcher.close(timeout_s=0.05) is False
    outcomes = callers.finish()
    gate.release.set()
    assert batcher.close()
    assert all(isinstance(outcome, WorkerDead) for outcome in outcomes)
    assert repr(batcher).startswith("<ThreadedBatcher 'jitney' dead queued=0 inside=0")
