"""The batching core without a thread: a fake clock, a fake inbox, and callers that are entries of an agenda."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from service.batching.admission import Admission, Arrival, WorkerState
from service.batching.faults import FaultKind
from service.batching.lanes import Lanes
from service.batching.listeners import Listeners
from service.batching.policy import BatchPolicy, Company, PackedShape, each_alone, nobody
from service.batching.schedulers import Fifo, Scheduler
from service.batching.tickets import BatchInfo, FlushReason, Priority, Ticket
from service.batching.worker import Worker
from service.errors import JitneyError, PredictionFailed
from support.clock import FakeClock
from support.inbox import FakeInbox
from support.models import Call, RecordingModel


class Listener:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.batches: list[BatchInfo] = []
        self.waits_s: list[float] = []
        self.errors: list[PredictionFailed] = []
        self.splits: list[tuple[FaultKind, int]] = []
        self.deaths: list[BaseException] = []

    def on_batch(self, info: BatchInfo, key: Any, waits_s: Sequence[float], errors: Sequence[PredictionFailed]) -> None:
        self.batches.append(info)
        self.waits_s.extend(waits_s)
        self.errors.extend(errors)

    def on_split(self, kind: FaultKind, size: int, key: Any) -> None:
        self.splits.append((kind, size))

    def on_death(self, cause: BaseException) -> None:
        self.deaths.append(cause)

    @property
    def reasons(self) -> list[FlushReason]:
        return [info.reason for info in self.batches]


class Core:
    """Admission and worker as the batcher wires them. `run` lives through the whole agenda on the test's own thread."""

    def __init__(
        self,
        *,
        before: Callable[[Call], None] | None = None,
        model: Callable[[Hashable, list[Any]], Any] | None = None,
        service_s: float | Callable[[Call], float] = 0.0,
        max_batch_size: int = 4,
        latency_s: float = 8.0,
        max_batch_tokens: int | None = None,
        policy: BatchPolicy = BatchPolicy.WINDOW,
        on_the_way: Callable[[], int] = nobody,
        scheduler: Scheduler | None = None,
        max_queue_size: int = 1000,
        listener: Any = None,
        inbox: Callable[[FakeClock], FakeInbox] = FakeInbox,
        on_start: Callable[[], None] | None = None,
        padded_length: Callable[[Hashable, int], int] | None = None,
        packing: Callable[[Hashable], PackedShape | None] = each_alone,
    ) -> None:
        self.clock = FakeClock()
        self.inbox = inbox(self.clock)
        self.listener = Listener() if listener is None else listener

        def act(call: Call) -> None:
            self.clock.advance(service_s(call) if callable(service_s) else service_s)
            if before is not None:
                before(call)

        self.model = RecordingModel(self.clock, act)
        self.admission = Admission(
            self.inbox, max_queue_size, counts_arrivals=policy is BatchPolicy.EAGER, clock=self.clock
        )
        self.worker = Worker(
            self.admission,
            self.inbox,
            self.model if model is None else model,
            lanes=Lanes(quantum=max_batch_size, company=Company(policy, latency_s, on_the_way)),
            scheduler=Fifo() if scheduler is None else scheduler,
            max_batch_size=max_batch_size,
            max_batch_tokens=max_batch_tokens,
            listeners=Listeners(self.listener),
            on_start=on_start,
            padded_length=padded_length,
            packing=packing,
            clock=self.clock,
        )
        # The door is open before the worker's first step, so that a test can fill the queue ahead of it.
        self.admission.advance(WorkerState.RUNNING)
        self.tickets: list[Ticket] = []

    def run(self) -> None:
        self.worker.run()

    def turn(self) -> None:
        """One step of `run`: receive what has come, then do one job, or send at most one batch."""
        mine = self.worker.instances.first
        self.worker._lead(mine)
        if mine.batch is not None:
            self.worker._serve(mine)

    def submit(
        self,
        rows: Sequence[Any],
        *,
        key: Hashable = None,
        lengths: Sequence[int] | None = None,
        timeout_s: float = 1000.0,
        priority: Priority = Priority.NORMAL,
        arrival: Arrival | None = None,
    ) -> Ticket:
        """Admit a request now; its waiter gives up at the deadline, as the real one does."""
        deadline = self.clock.now + timeout_s
        ticket = Ticket.of(
            rows, [1] * len(rows) if lengths is None else lengths, key=key, deadline=deadline, priority=priority
        )
        self.admission.admit(ticket, arrival, lambda queued: float(queued))
        self.tickets.append(ticket)
        self.clock.at(deadline, lambda: self.give_up(ticket))
        return ticket

    def submit_at(self, moment: float, rows: Sequence[Any], **how: Any) -> None:
        self.clock.at(moment, lambda: self.submit(rows, **how))

    def give_up(self, ticket: Ticket) -> bool:
        """The caller leaves; False when its answer is there already."""
        return self.admission.abandon(ticket)

    def outcome(self, ticket: Ticket) -> list[Any] | BaseException | None:
        """What the caller got: results, an error, or None for a caller that left first."""
        if ticket.abandoned:
            return None
        assert ticket.done.is_set(), "nobody answered"
        return ticket.results if ticket.failure is None else ticket.failure

    def assert_at_rest(self) -> None:
        """Nothing is left inside."""
        assert self.admission.queued == 0
        assert not self.worker._lanes
        assert all(ticket.abandoned or ticket.done.is_set() for ticket in self.tickets)
        assert not any(ticket.rows for ticket in self.tickets)


def error_of(action: Callable[[], object]) -> JitneyError:
    """The error that `action` ends with."""
    try:
        action()
    except JitneyError as error:
        return error
    raise AssertionError("no error was raised")
