"""Whole lives of the batching core, made up by hypothesis, held against the invariants I1 to I9."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.core import Core
from support.models import Call

from service.batching.lanes import MAX_PASSES
from service.batching.policy import BatchPolicy
from service.batching.schedulers import make_scheduler
from service.batching.tickets import Ticket
from service.errors import OutputCountMismatch, PredictionFailed, QueueFull, WorkerDead

# All times are multiples of an eighth, which floats hold exactly.
TICK_S = 0.125


@dataclass(frozen=True)
class Request:
    """What a caller does. Times in ticks; `bad`: indices of rows that the model cannot digest."""

    at: int
    lengths: list[int]
    key: str
    timeout: int
    preparation: int
    bad: frozenset[int]


@dataclass(frozen=True)
class Setup:
    max_batch_size: int
    latency: int
    max_batch_tokens: int | None
    policy: BatchPolicy
    scheduler: str
    max_queue_size: int
    service: int
    service_per_row: int
    memory_rows: int
    short_calls: frozenset[int]
    killed_at_call: int | None


requests = st.builds(
    Request,
    at=st.integers(0, 200),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=14),
    key=st.sampled_from(["a", "a", "b", "c"]),
    timeout=st.integers(1, 400),
    preparation=st.integers(0, 12),
    bad=st.frozensets(st.integers(0, 40), max_size=2),
)
setups = st.builds(
    Setup,
    max_batch_size=st.integers(1, 8),
    latency=st.integers(0, 40),
    max_batch_tokens=st.none() | st.integers(1, 40),
    policy=st.sampled_from(BatchPolicy),
    scheduler=st.sampled_from(["fifo", "length_aware", "grouped", "cost"]),
    max_queue_size=st.integers(5, 60),
    service=st.integers(0, 20),
    service_per_row=st.integers(0, 4),
    memory_rows=st.sampled_from([100, 100, 100, 3]),
    short_calls=st.just(frozenset[int]()) | st.frozensets(st.integers(1, 6), max_size=1),
    killed_at_call=st.none() | st.none() | st.none() | st.integers(1, 12),
)


@dataclass
class Simulation:
    """One life. A row's payload is (request, index, digestible); the model's answer to it is that, wrapped."""

    setup: Setup
    plan: list[Request]
    admitted: dict[int, Ticket] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    seen: set[tuple[int, int]] = field(default_factory=set)
    first_runs: list[Call] = field(default_factory=list)
    buffer: list[Any] = field(default_factory=list)
    free_at: float = 0.0
    killed: bool = False
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        setup = self.setup
        self.core = Core(
            model=self.model,
            max_batch_size=setup.max_batch_size,
            latency_s=setup.latency * TICK_S,
            max_batch_tokens=setup.max_batch_tokens,
            policy=setup.policy,
            scheduler=make_scheduler(setup.scheduler),
            max_queue_size=setup.max_queue_size,
        )
        self.calls = 0
        for number, request in enumerate(self.plan):
            self.core.clock.at(request.at * TICK_S, lambda number=number: self.arrive(number))

    def arrive(self, number: int) -> None:
        """The request begins to be prepared, and reaches the queue some time later."""
        arrival = self.core.admission.announce()
        ready_at = (self.plan[number].at + self.plan[number].preparation) * TICK_S
        self.core.clock.at(ready_at, lambda: self.enter(number, arrival))

    def enter(self, number: int, arrival: Any) -> None:
        request, admission = self.plan[number], self.core.admission
        rows = [(number, index, index not in request.bad) for index in range(len(request.lengths))]
        queued = admission.queued
        try:
            self.admitted[number] = self.core.submit(
                rows, key=request.key, lengths=request.lengths, timeout_s=request.timeout * TICK_S, arrival=arrival
            )
            self.expect(queued + len(rows) <= self.setup.max_queue_size, "I8: more rows than the limit")
        except QueueFull:
            self.refused.add(number)
            self.expect(queued + len(rows) > self.setup.max_queue_size, "I8: refused although there was room")
            self.expect(admission.queued == queued, "I8: refused, but counted")
        except WorkerDead:
            self.refused.add(number)
        finally:
            arrival.release()

    def expect(self, holds: bool, what: str) -> None:
        """An assertion that the worker cannot take for a failure of the model."""
        if not holds:
            self.broken.append(what)

    def model(self, key: Hashable, rows: list[Any]) -> Any:
        self.calls += 1
        now = self.core.clock.now
        self.expect(1 <= len(rows) <= self.setup.max_batch_size, "I3: too many rows")
        for number, _, _ in rows:
            request, ticket = self.plan[number], self.admitted[number]
            self.expect(request.key == key, "lanes are mixed")
            self.expect(not ticket.abandoned, "I7: the caller has gone")
            self.expect(now < ticket.deadline, "I7: the deadline has passed")
        if not self.seen.intersection((number, index) for number, index, _ in rows):
            self.check_first_run(Call(now, key, rows))
        self.seen.update((number, index) for number, index, _ in rows)
        self.core.clock.advance((self.setup.service + self.setup.service_per_row * len(rows)) * TICK_S)
        self.free_at = self.core.clock.now
        if self.setup.killed_at_call == self.calls:
            self.killed = True
            raise SystemExit
        if len(rows) > self.setup.memory_rows:
            raise MemoryError
        if not all(digestible for _, _, digestible in rows):
            raise ValueError("cannot digest")
        # I9: the same list is written into again and again.
        self.buffer[:] = [["answer", row] for row in rows]
        return self.buffer[:-1] if self.calls in self.setup.short_calls else self.buffer

    def check_first_run(self, call: Call) -> None:
        self.first_runs.append(call)
        tickets = [self.admitted[number] for number, _, _ in call.rows]
        due = min(ticket.enqueued_at for ticket in tickets) + self.setup.latency * TICK_S
        self.expect(call.at <= max(due, self.free_at), "I4: later than its due time, although the worker was free")
        lengths = [self.plan[number].lengths[index] for number, index, _ in call.rows]
        budget, cost = self.setup.max_batch_tokens, len(lengths) * max(lengths)
        self.expect(budget is None or len(lengths) == 1 or cost <= budget, "over the token budget")
        # To `cost` the size is a ceiling: it leaves rows behind where more of them would make none cheaper.
        if (
            budget is None
            and len(call.rows) < self.core.worker.effective_max_batch_size
            and self.setup.scheduler != "cost"
        ):
            left = sum(len(ticket.rows) for ticket in self.admitted.values() if ticket.key == call.key)
            self.expect(left == 0, "I5: left short while compatible rows were queued")

    def check_end(self) -> None:
        core = self.core
        assert not self.broken
        assert core.admission.queued == 0, "the queue count is not exact"
        assert core.admission.on_the_way == 0, "an arrival is still counted"
        assert len(self.admitted) + len(self.refused) == len(self.plan)
        for number in self.refused:
            assert not any(row[0] == number for row in self.seen), "I8: a refused request was run"
        for number, ticket in self.admitted.items():
            self.check_outcome(number, ticket)
        if not self.killed:
            core.assert_at_rest()
            self.check_order()

    def check_outcome(self, number: int, ticket: Ticket) -> None:
        request = self.plan[number]
        outcome = self.core.outcome(ticket)
        if outcome is None:
            return
        if isinstance(outcome, WorkerDead):
            assert self.killed, "I1: a live worker left somebody"
        elif isinstance(outcome, OutputCountMismatch):
            assert self.setup.short_calls
        elif isinstance(outcome, PredictionFailed):
            assert ticket.failed_rows, "I6: failed without a culprit"
            # A call with too few results fails all of its rows, also when it is one of the retries.
            own = set(ticket.failed_rows) <= request.bad or bool(self.setup.short_calls)
            assert own, "I6: failed for somebody else's row"
        else:
            assert not request.bad.intersection(range(len(request.lengths))), "I6: a bad row was answered"
            expected = [["answer", (number, index, True)] for index in range(len(request.lengths))]
            assert outcome == expected, "I1, I9: not its own results in its own order"

    def check_order(self) -> None:
        """I2: first come first served where that is the promise, and a bounded wait in any case."""
        for key in ("a", "b", "c"):
            runs = [run for run in self.first_runs if run.key == key]
            order = [(number, index) for run in runs for number, index, _ in sorted(run.rows)]
            if self.setup.scheduler == "fifo":
                for number, request in enumerate(self.plan):
                    own = [index for row_number, index in order if row_number == number]
                    assert own == sorted(own), "I2: a caller's rows were reordered"
                    assert request.key == key or not own
                if all(len(request.lengths) <= self.setup.max_batch_size for request in self.plan):
                    moments = [self.admitted[number].enqueued_at for run in runs for number, _, _ in run.rows]
                    assert moments == sorted(moments), "I2: overtaken"
        for number, ticket in self.admitted.items():
            later = [run for run in self.first_runs if run.at >= ticket.enqueued_at and run.key == ticket.key]
            own = [position for position, run in enumerate(later) if any(row[0] == number for row in run.rows)]
            bound = (MAX_PASSES + 1) * self.setup.max_queue_size
            assert not own or own[0] <= bound, "I2: overtaken without bound"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setup=setups, plan=st.lists(requests, min_size=1, max_size=25))
def test_the_invariants_hold_in_every_life(setup: Setup, plan: list[Request]) -> None:
    simulation = Simulation(setup, plan)
    simulation.core.run()
    simulation.core.clock.advance(1000.0)  # callers come and leave after the worker's end too
    simulation.check_end()
    for batch in simulation.core.listener.batches:
        event(f"left because of {batch.reason}")
    event("killed" if simulation.killed else "stopped")
