"""The gate between request threads and the worker: who may enter, and how many are inside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Protocol

from service.batching.forks import forks
from service.batching.tickets import Job, Row, Ticket
from service.errors import Draining, JitneyError, NotReady, QueueFull, WorkerDead


class WorkerState(StrEnum):
    """The life of a batcher; it only ever moves down this list. The values are words of the health answer."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"
    DEAD = "dead"


class Signal(StrEnum):
    """What the worker finds in its inbox beside requests."""

    WAKE = "wake"
    STOP = "stop"


Message = Ticket | Job | Signal


class Inbox(Protocol):
    """The part of `DrainedQueue` that is used; a test puts one here that moves a clock instead of waiting."""

    def put(self, item: Message) -> None: ...

    def get(self, block: bool = True, timeout: float | None = None) -> Message: ...

    def drain(self) -> list[Message]: ...


class Arrival:
    """One request that is being read or prepared. Releasing it twice is harmless.

    `counted`: somebody may wait for it.
    """

    __slots__ = ("belongs_to", "counted")

    def __init__(self, admission: Admission, *, counted: bool) -> None:
        self.belongs_to = admission
        self.counted = counted

    def release(self) -> None:
        """The request will not reach the queue: nobody needs to wait for it."""
        self.belongs_to.dismiss(self)


class Admission:
    """Counts rows and refuses what must not enter, each in one step under one lock.

    The lock guards `state`, `queued`, `on_the_way`, `abandons`, and `rows` and `abandoned` of every ticket. `queued`
    is the number of rows in all those tickets; `abandons` changes when some of them need not run any longer.
    `outstanding` holds every admitted request that its caller has not left yet; single dictionary operations on it are
    atomic, so callers leave without the lock.
    """

    def __init__(
        self,
        inbox: Inbox,
        max_queue_size: int,
        *,
        counts_arrivals: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._inbox = inbox
        self._max_queue_size = max_queue_size
        self._counts_arrivals = counts_arrivals
        self._uncounted = Arrival(self, counted=False)
        self._forks = forks()
        self.state = WorkerState.NEW
        self.started = threading.Event()  # the state is beyond STARTING
        self.cause: BaseException | None = None
        self.queued = 0
        self.on_the_way = 0
        self.abandons = 0
        self.outstanding: dict[Ticket, None] = {}
        self.jobs: dict[Job, None] = {}

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that made it: there is no worker here, and the lock may be held."""
        return forks() != self._forks

    def refuse_after_fork(self) -> None:
        """Raise NotReady in a child process."""
        if self.is_forked:
            raise NotReady("this batcher was made before a fork; make and start one in the child process")

    def announce(self) -> Arrival:
        """Tell the eager policy that a request is on its way to the queue; no other asks for that."""
        self.refuse_after_fork()
        if not self._counts_arrivals:
            return self._uncounted
        with self._lock:
            self.on_the_way += 1
        return Arrival(self, counted=True)

    def check_own(self, arrival: Arrival) -> None:
        """Raise ValueError for what `announce` did not give: counting it would keep others waiting."""
        if not isinstance(arrival, Arrival) or arrival.belongs_to is not self:
            raise ValueError("arrival must be what announce() of this batcher gave")

    def dismiss(self, arrival: Arrival) -> None:
        """Undo `announce` for a request that never reached the queue."""
        if not arrival.counted or self.is_forked:
            return
        with self._lock:
            last = self._uncount(arrival)
        if last:
            self._inbox.put(Signal.WAKE)

    def still_on_the_way(self) -> int:
        """How many requests the eager policy waits for; the inbox holds every one that is no longer among them."""
        if not self._counts_arrivals:
            return 0
        with self._lock:
            return self.on_the_way

    def admit(self, ticket: Ticket, arrival: Arrival | None, retry_after_s: Callable[[int], float]) -> None:
        """Queue all rows of a request, or raise and queue none.

        Raises NotReady, Draining, WorkerDead, or QueueFull with `retry_after_s(rows inside)`.
        """
        self.refuse_after_fork()
        rows = len(ticket.rows)
        with self._lock:
            if self.state is not WorkerState.RUNNING:
                raise self._refusal() from self.cause
            room = self.queued + rows <= self._max_queue_size
            queued = self.queued
            if room:
                self.queued += rows
                ticket.enqueued_at = ticket.turn_at = self._clock()
                self.outstanding[ticket] = None
                if arrival is not None:
                    self._uncount(arrival)
                self._inbox.put(ticket)
        if not room:
            raise QueueFull(rows, queued, self._max_queue_size, retry_after_s(queued))

    def post(self, job: Job) -> None:
        """Queue a job for the worker thread; raises NotReady, Draining or WorkerDead."""
        self.refuse_after_fork()
        with self._lock:
            if self.state is not WorkerState.RUNNING:
                raise self._refusal() from self.cause
            self.jobs[job] = None
            self._inbox.put(job)

    def claim(self, rows: list[Row], now: float) -> bool:
        """Take rows out of the queue for a batch: all of them, or none if one of them is not wanted any more."""
        with self._lock:
            for row in rows:
                if row.ticket.expired(now):
                    return False
            for row in rows:
                ticket = row.ticket
                del ticket.rows[row.index]
                if not ticket.rows:
                    ticket.taken_at = now
            self.queued -= len(rows)
            return True

    def abandon(self, ticket: Ticket) -> bool:
        """The caller leaves without its answer; the room of its waiting rows is free at once.

        False when the answer is there already: then the caller must take it.
        """
        with self._lock:
            if ticket.done.is_set():
                return False
            if not ticket.abandoned:
                ticket.abandoned = True
                self.abandons += 1
                self._free(ticket)
            return True

    def give_up(self, tickets: Iterable[Ticket]) -> None:
        """A worker has failed these requests; their other rows need not run, and whoever has them in a lane is told."""
        with self._lock:
            for ticket in tickets:
                if ticket.rows:
                    self.abandons += 1
                    self._free(ticket)

    def leave(self, ticket: Ticket) -> None:
        """The caller has its outcome, or does not wait for it any longer."""
        if not ticket.done.is_set():
            self.abandon(ticket)
        self.outstanding.pop(ticket, None)

    def advance(self, state: WorkerState, *, cause: BaseException | None = None) -> bool:
        """Move on to `state`; False when the batcher is there already or beyond it."""
        order = list(WorkerState)
        with self._lock:
            if order.index(state) <= order.index(self.state):
                return False
            self.state = state
            if cause is not None:
                self.cause = cause
            if state not in (WorkerState.NEW, WorkerState.STARTING):
                self.started.set()
            return True

    def fail_everyone(self, message: str, cause: BaseException | None = None) -> None:
        """Answer everyone who is still inside with a WorkerDead of their own; call it once no more can enter."""

        def error() -> WorkerDead:
            dead = WorkerDead(message)
            dead.__cause__ = cause
            return dead

        with self._lock:
            unanswered = [ticket for ticket in list(self.outstanding) if not ticket.done.is_set()]
            for ticket in unanswered:
                ticket.fail(error())
                self._free(ticket)
            jobs = [job for job in list(self.jobs) if not job.done.is_set()]
            for job in jobs:
                job.failure = error()
        for done in [*(ticket.done for ticket in unanswered), *(job.done for job in jobs)]:
            done.set()

    def _refusal(self) -> JitneyError:
        if self.state in (WorkerState.NEW, WorkerState.STARTING):
            return NotReady("the model is still loading")
        if self.state is WorkerState.DEAD:
            return WorkerDead("the inference worker has ended and is being replaced")
        return Draining("the service is stopping and takes no new work")

    def _uncount(self, arrival: Arrival) -> bool:
        """Whether this was the last request on its way."""
        if not arrival.counted:
            return False
        arrival.counted = False
        self.on_the_way -= 1
        return self.on_the_way == 0

    def _free(self, ticket: Ticket) -> None:
        self.queued -= len(ticket.rows)
        ticket.rows = {}
