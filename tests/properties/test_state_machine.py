"""Any order of submit, give up, serve, advance time, fail, close and kill; after every step the books must balance."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.core import Core

from service.batching.admission import Arrival, Signal, WorkerState
from service.batching.policy import BatchPolicy
from service.batching.schedulers import make_scheduler
from service.batching.tickets import Ticket
from service.errors import JitneyError, PredictionFailed, QueueFull, WorkerDead

MAX_QUEUE_SIZE = 12


class BatcherMachine(RuleBasedStateMachine):
    """The core, and beside it what a bookkeeper with pencil and paper knows of it."""

    @initialize(
        policy=st.sampled_from(BatchPolicy),
        scheduler=st.sampled_from(["fifo", "length_aware", "grouped", "cost"]),
        max_batch_size=st.integers(1, 5),
    )
    def begin(self, policy: BatchPolicy, scheduler: str, max_batch_size: int) -> None:
        self.core = Core(
            model=self.model,
            policy=policy,
            scheduler=make_scheduler(scheduler),
            max_batch_size=max_batch_size,
            max_queue_size=MAX_QUEUE_SIZE,
            latency_s=4.0,
        )
        self.max_batch_size = max_batch_size
        self.next_call: list[BaseException] = []
        self.expected: dict[Ticket, list[Any]] = {}
        self.in_model: set[int] = set()
        self.rows_made = 0
        self.arrivals: list[Arrival] = []
        self.answers: dict[Ticket, object] = {}
        self.model_saw_too_many = False

    def model(self, key: Hashable, rows: list[Any]) -> list[Any]:
        self.model_saw_too_many |= len(rows) > self.max_batch_size
        self.in_model.update(rows)
        if self.next_call:
            raise self.next_call.pop()
        return [(key, row) for row in rows]

    @property
    def is_open(self) -> bool:
        return self.core.admission.state is WorkerState.RUNNING

    @rule()
    def announce(self) -> None:
        if self.is_open:
            self.arrivals.append(self.core.admission.announce())

    @precondition(lambda self: self.arrivals)
    @rule()
    def dismiss(self) -> None:
        self.arrivals.pop().release()

    @rule(
        lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
        key=st.sampled_from("ab"),
        timeout_s=st.integers(1, 30),
        announced=st.booleans(),
    )
    def submit(self, lengths: list[int], key: str, timeout_s: int, announced: bool) -> None:
        arrival = self.arrivals.pop() if announced and self.arrivals else None
        rows = list(range(self.rows_made, self.rows_made + len(lengths)))
        self.rows_made += len(lengths)
        before = self.core.admission.queued
        try:
            ticket = self.core.submit(rows, key=key, lengths=lengths, timeout_s=float(timeout_s), arrival=arrival)
        except QueueFull:
            assert before + len(rows) > MAX_QUEUE_SIZE
            assert self.core.admission.queued == before
        except JitneyError:
            assert not self.is_open
        else:
            assert self.is_open
            self.expected[ticket] = [(key, row) for row in rows]
        finally:
            if arrival is not None:
                arrival.release()

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(list(self.expected)))
        was_done = ticket.done.is_set()
        assert self.core.give_up(ticket) != was_done

    @rule(seconds=st.integers(1, 8))
    def advance_time(self, seconds: int) -> None:
        self.core.clock.advance(float(seconds))

    @rule(
        error=st.sampled_from(
            [ValueError("bad row"), MemoryError(), RuntimeError("CUDA error: device-side assert triggered")]
        )
    )
    def fail_the_next_call(self, error: Exception) -> None:
        self.next_call = [error]

    @precondition(lambda self: self.is_open and (self.core.inbox.qsize() or self.core.worker._lanes))
    @rule()
    def serve(self) -> None:
        if any("CUDA" in str(error) for error in self.next_call):
            self.core.run()
        else:
            self.core.turn()

    @precondition(lambda self: self.is_open)
    @rule()
    def close(self) -> None:
        self.core.admission.advance(WorkerState.DRAINING)
        self.core.inbox.put(Signal.STOP)
        self.core.run()
        assert self.core.admission.state in (WorkerState.STOPPED, WorkerState.DEAD)

    @precondition(lambda self: self.is_open)
    @rule()
    def kill(self) -> None:
        self.next_call = [SystemExit()]
        self.core.run()

    @rule()
    def close_in_vain(self) -> None:
        """The worker did not end in time: everyone is told, whatever it does later."""
        self.core.admission.advance(WorkerState.DEAD)
        self.core.admission.fail_everyone("closed")

    @invariant()
    def the_books_balance(self) -> None:
        admission = self.core.admission
        waiting = sum(len(ticket.rows) for ticket in self.expected)
        assert admission.queued == waiting, "the count is not exact"
        assert 0 <= admission.queued <= MAX_QUEUE_SIZE
        assert admission.on_the_way == sum(arrival.counted for arrival in self.arrivals)
        assert not self.model_saw_too_many

    @invariant()
    def nobody_waits_on_a_worker_that_has_ended(self) -> None:
        if self.core.admission.state in (WorkerState.STOPPED, WorkerState.DEAD):
            assert all(ticket.abandoned or ticket.done.is_set() for ticket in self.expected)
            assert self.core.admission.queued == 0

    @invariant()
    def everyone_is_answered_once_with_its_own(self) -> None:
        for ticket, expected in self.expected.items():
            if not ticket.done.is_set() or ticket.abandoned:
                continue
            outcome = self.core.outcome(ticket)
            assert isinstance(outcome, (PredictionFailed, WorkerDead)) or outcome == expected
            assert self.answers.setdefault(ticket, outcome) is outcome

    @invariant()
    def rows_of_callers_that_left_in_the_queue_stay_out_of_the_model(self) -> None:
        for ticket, expected in self.expected.items():
            if ticket.abandoned:
                assert not ticket.rows
            else:
                assert not any(row.payload in self.in_model for row in ticket.rows.values())
                assert ticket.done.is_set() or len(expected) >= len(ticket.rows)

    def teardown(self) -> None:
        if hasattr(self, "core"):
            if self.is_open:
                self.close()
            self.the_books_balance()
            self.nobody_waits_on_a_worker_that_has_ended()
            self.everyone_is_answered_once_with_its_own()


TestBatcherMachine = BatcherMachine.TestCase
TestBatcherMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
