"""`ThreadedBatcher`: rows of independent callers in, full batches through the model, each caller its own answer out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType
from typing import Any, Self

from service.batching import checks
from service.batching.admission import Admission, Arrival, Inbox, Signal, WorkerState
from service.batching.course import Course
from service.batching.inbox import DrainedQueue
from service.batching.lanes import Lanes
from service.batching.listeners import BatchListener, Listeners, OnOrigins
from service.batching.one_shot import OneShotEvent
from service.batching.policy import BatchPolicy, Company, PackedShape, each_alone, nobody, side_by_side
from service.batching.schedulers import Scheduler, make_scheduler
from service.batching.status import BatcherStatus
from service.batching.threads import WorkerThreads
from service.batching.tickets import Answer, Job, Priority, Ticket
from service.batching.waiting import GONE_CHECK_S, LONGEST_WAIT_S, answer_of, named, wait_for
from service.batching.worker import Worker
from service.errors import ClientGone, DeadlineExceeded, JitneyError


class ThreadedBatcher:
    """Batches the rows of many threads into calls of one function, made by one worker thread, or by a few.

    `predict(rows)` gets a list of 1 to `max_batch_size` rows and gives one result per row, in order; rows submitted
    under a `key` reach `predict(rows, key)`, and only rows whose keys are equal and of the same type share a batch (so
    1 and True do not). A batch leaves when
    `max_batch_size` rows wait, when `max_batch_tokens` is used up (rows times longest row), when its oldest row has
    waited `max_batch_latency_s` since `submit`, or on `close`; `policy="eager"` also lets it leave as soon as the
    worker is free. `scheduler`: "fifo", "length_aware", "grouped", "cost", a registered name, or an object of your own.
    `max_queue_size`: rows admitted and not yet in a batch. `default_timeout_s`: how long `submit` waits at most when it
    is not told. `instances`: worker threads, which serve one queue; with more than one `predict` is called by so many
    threads at once, and can ask `instances.instance()` which of them calls.
    `length_of`: a row's length in tokens, for schedulers and the budget. `padded_length(key, longest)`: the length to
    which the model really pads a batch, for what is reported about it. `on_start` runs on a worker thread before the
    first batch; until it has returned, `submit` raises NotReady. `on_stop` runs on one after the last batch, unless a
    worker died. `listener` hears of batches and failures. `on_origins(info, key, origins, errors)` hears, on the worker
    thread, whose rows each batch held: for each row the `origin` that its request gave to `ask`.
    `on_the_way()`: how many requests a server has received and not announced yet; for them the eager policy lets a free
    worker wait, a few milliseconds at most (`policy.UNREAD_WAIT_S`). Asked on the worker thread; it must not block.
    `is_pipelined(key)`: whichever thread calls `predict`, such batches run one after the other, as on a GPU; another of
    several `instances` takes the next one when it is full, or the first is back. Asked on the worker thread.
    `packing(key)`: for models that compute several short rows in one, what tells in how many rows, and how long ones,
    rows of such lengths are computed; it takes the place of `padded_length`. Asked on the worker threads.
    `clock` and `inbox` are for tests.

    Use it as a context manager, or call `start` and `close`; once closed it stays closed. It belongs to the process
    that made it: after a fork it refuses to work in the child.

    *Thread:* any thread may call any method.
    """

    def __init__(
        self,
        predict: Callable[..., Any],
        *,
        max_batch_size: int = 32,
        max_batch_latency_s: float = 0.005,
        max_batch_tokens: int | None = None,
        policy: str = BatchPolicy.WINDOW,
        scheduler: str | Scheduler = "fifo",
        max_queue_size: int = 1024,
        default_timeout_s: float = 30.0,
        instances: int = 1,
        length_of: Callable[[Any], int] | None = None,
        padded_length: Callable[[Any, int], int] | None = None,
        on_start: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
        listener: BatchListener | None = None,
        on_origins: OnOrigins | None = None,
        on_the_way: Callable[[], int] = nobody,
        is_pipelined: Callable[[Any], bool] = side_by_side,
        packing: Callable[[Any], PackedShape | None] = each_alone,
        name: str = "jitney",
        clock: Callable[[], float] = time.monotonic,
        inbox: Inbox | None = None,
    ) -> None:
        max_batch_size = checks.whole("max_batch_size", max_batch_size)
        max_queue_size = checks.whole("max_queue_size", max_queue_size)
        instances = checks.whole("instances", instances)
        max_batch_latency_s = checks.seconds("max_batch_latency_s", max_batch_latency_s)
        default_timeout_s = checks.seconds("default_timeout_s", default_timeout_s)
        if max_batch_tokens is not None:
            max_batch_tokens = checks.whole("max_batch_tokens", max_batch_tokens)
        self._predict = predict
        self._max_batch_latency_s = max_batch_latency_s
        self._default_timeout_s = default_timeout_s
        self._length_of = length_of
        self._name = name
        self._clock = clock
        self._on_start = on_start
        self._inbox: Inbox = DrainedQueue() if inbox is None else inbox
        batch_policy = BatchPolicy(policy)
        self._admission = Admission(
            self._inbox, max_queue_size, counts_arrivals=batch_policy is BatchPolicy.EAGER, clock=clock
        )
        self._worker = Worker(
            self._admission,
            self._inbox,
            self._call,
            lanes=Lanes(quantum=max_batch_size, company=Company(batch_policy, max_batch_latency_s, on_the_way)),
            scheduler=make_scheduler(scheduler) if isinstance(scheduler, str) else scheduler,
            max_batch_size=max_batch_size,
            max_batch_tokens=max_batch_tokens,
            listeners=Listeners(listener, on_origins),
            instances=instances,
            on_start=on_start,
            on_stop=on_stop,
            padded_length=padded_length,
            is_pipelined=is_pipelined,
            packing=packing,
            clock=clock,
        )
        self._start_lock = threading.Lock()  # held for a start: a close during one waits for the threads to be there
        self._threads = WorkerThreads(instances, name, self._worker.run)

    def __repr__(self) -> str:
        admission = self._admission
        return (
            f"<ThreadedBatcher {self._name!r} {admission.state} queued={admission.queued}"
            f" inside={len(admission.outstanding)} on_the_way={admission.on_the_way} {self._worker.delivery.ceiling!r}>"
        )

    def __enter__(self) -> Self:
        self.start()
        self.wait_started(self._default_timeout_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the worker threads; does nothing when they have been started or closed before."""
        self._admission.refuse_after_fork()
        with self._start_lock:
            if not self._admission.advance(WorkerState.STARTING):
                return
            try:
                self._threads.start()
            except BaseException as error:
                self._admission.advance(WorkerState.DEAD, cause=error)
                self._inbox.put(Signal.STOP)  # for those that could be started
                raise
        if self._on_start is None:
            # There is nothing to wait for: whoever has started it may submit at once.
            self._admission.advance(WorkerState.RUNNING)

    def wait_started(self, timeout_s: float) -> bool:
        """Wait until rows are taken, or never will be: the start has ended, well or not; False after `timeout_s`."""
        return self._admission.started.wait(min(timeout_s, threading.TIMEOUT_MAX))

    def close(self, timeout_s: float = 30.0) -> bool:
        """Take no new work, answer everything that was admitted, and stop the worker threads.

        Returns False when they did not end within `timeout_s` seconds; then everyone who still waits gets
        `WorkerDead`. A worker thread itself cannot wait for its own end: called there, it returns False at once and
        the rest follows. Calling it again is harmless; in a forked child there is nothing to close.
        """
        if self._admission.is_forked:
            return True
        self._admission.advance(WorkerState.DRAINING)
        with self._start_lock:
            was_started = bool(self._threads)
        if not was_started:
            self._admission.advance(WorkerState.STOPPED)
            return True
        self._inbox.put(Signal.STOP)
        if self._worker.instances.has_this_thread():
            return False
        if not self._threads.join(timeout_s):
            self._admission.advance(WorkerState.DEAD)
            self._admission.fail_everyone("the batcher was closed before the model answered")
            return False
        return True

    def submit(
        self,
        rows: Sequence[Any],
        timeout_s: float | None = None,
        *,
        key: Hashable = None,
        lengths: Sequence[int] | None = None,
    ) -> list[Any]:
        """One result per row, in the order of `rows`; blocks until they are there.

        Raises QueueFull, NotReady, Draining or WorkerDead when nothing was queued; DeadlineExceeded after
        `timeout_s` seconds; a PredictionFailed naming the rows when the model failed on them; ValueError when an
        argument is wrong, and RuntimeError on the worker thread, which would wait for itself.
        """
        return self._served(rows, timeout_s, key, lengths).results

    def ask(
        self,
        rows: Sequence[Any],
        timeout_s: float | None = None,
        *,
        key: Hashable = None,
        lengths: Sequence[int] | None = None,
        priority: Priority = Priority.NORMAL,
        arrival: Arrival | None = None,
        is_gone: Callable[[], bool] | None = None,
        origin: object | None = None,
        request_id: str = "",
        course: Course | None = None,
    ) -> Answer:
        """Like `submit`, but tells about the batches too, and knows who goes first.

        `arrival`: what `announce` gave for this request; it is released whatever happens. `is_gone` is asked now and
        then while waiting; when it says True the rows are withdrawn and ClientGone is raised. `origin`: whatever tells
        `on_origins` where the request comes from. `request_id`: what the log is to call the request when it fails.
        `course`: is filled in with how far the request came, whatever becomes of it.
        """
        return answer_of(
            self._served(rows, timeout_s, key, lengths, priority, arrival, is_gone, origin, request_id, course)
        )

    def enter(
        self,
        rows: Sequence[Any],
        timeout_s: float,
        *,
        done: OneShotEvent,
        key: Hashable,
        lengths: Sequence[int] | None = None,
        priority: Priority = Priority.NORMAL,
        arrival: Arrival | None = None,
        origin: object | None = None,
        request_id: str = "",
    ) -> Ticket:
        """Admit rows, at least one, whose caller waits elsewhere, and return at once; raises what `ask` raises first.

        `done` is set when the ticket holds the outcome, on the worker thread or on that of whoever ends it. Whoever
        enters must `leave`: also when nobody waits any longer, as the worker drops rows that are late without a word.
        """
        ticket = self._ticket(rows, lengths, key, self._clock() + timeout_s, priority)
        ticket.done, ticket.origin, ticket.request_id = done, origin, request_id
        try:
            self._admission.admit(ticket, arrival, self.retry_after_s)
        except JitneyError:
            ticket.rows = {}  # as in `_served`
            raise
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Take a request that entered out again: its outcome is known, or nobody waits for it any longer."""
        self._admission.leave(ticket)

    def call(
        self, run: Callable[[], Any], timeout_s: float | None = None, *, is_gone: Callable[[], bool] | None = None
    ) -> Any:
        """Call `run` on a worker thread, between two batches, and return what it returns.

        What it raises is raised here. After `timeout_s` seconds DeadlineExceeded is raised, and ClientGone when
        `is_gone` says so: a call that has begun goes on, one that has not does not take place. No batch runs meanwhile.
        Raises RuntimeError on the worker thread, which would wait for itself.
        """
        self._refuse_worker()
        began = self._clock()
        patience_s = self._patience_s(timeout_s)
        job = Job(run)
        self._admission.post(job)
        longest_s = LONGEST_WAIT_S if is_gone is None else GONE_CHECK_S
        try:
            while not job.done.wait(max(0.0, min(began + patience_s - self._clock(), longest_s))):
                if self._clock() >= began + patience_s:
                    raise DeadlineExceeded(self._clock() - began)
                if is_gone is not None and is_gone():
                    raise ClientGone("the client closed its connection")
        finally:
            job.is_wanted = False
        if job.failure is not None:
            try:
                raise job.failure
            finally:
                job.failure = None  # it holds this frame, which would hold it for the garbage collector
        return job.result

    def post(self, run: Callable[[], Any]) -> None:
        """Like `call`, but returns at once; what `run` raises is logged. May be used on the worker thread too."""
        self._admission.post(Job(run, awaited=False))

    def announce(self) -> Arrival:
        """Say that a request is being read or prepared; the eager policy waits for it, as long as it waits for any.

        Hand the result to `ask`, or release it when the request does not get that far.
        """
        return self._admission.announce()

    def status(self, belongs: Callable[[Any], bool] | None = None) -> BatcherStatus:
        """A snapshot; takes no lock and never waits. `belongs(key)`: count only rows that wait under such keys."""
        now = self._clock()
        worker, admission, threads = self._worker, self._admission, self._threads
        waiting = [ticket for ticket in list(admission.outstanding) if ticket.rows]
        queued = admission.queued
        if belongs is not None:
            waiting = [ticket for ticket in waiting if belongs(ticket.key)]
            queued = sum(len(ticket.rows) for ticket in waiting)
        last_batch_at = worker.delivery.last_batch_at
        state = admission.state
        # Of threads that stop, the last one has something to do yet.
        alive = threads.any_is_there if state is WorkerState.DRAINING else threads.are_there
        return BatcherStatus(
            state=state,
            alive=alive and state is not WorkerState.DEAD,
            queued=queued,
            backlog_s=queued * worker.row_s,
            oldest_wait_s=max(0.0, now - waiting[0].enqueued_at) if waiting else 0.0,
            busy_s=_since(worker.instances.busy_since, now),
            job_s=_since(worker.job_since, now),
            last_batch_age_s=None if last_batch_at is None else max(0.0, now - last_batch_at),
            effective_max_batch_size=worker.effective_max_batch_size,
            cause=admission.cause,
            instances=len(worker.instances),
            busy_instances=worker.instances.busy,
        )

    @property
    def effective_max_batch_size(self) -> int:
        """How many rows memory allows in a batch now."""
        return self._worker.effective_max_batch_size

    @property
    def queued(self) -> int:
        """How many rows wait for a batch."""
        return self._admission.queued

    def retry_after_s(self, queued: int) -> float:
        """When so many rows that wait will have been served, at the pace measured so far; seconds."""
        return max(self._max_batch_latency_s, queued * self._worker.row_s)

    def _served(
        self,
        rows: Sequence[Any],
        timeout_s: float | None,
        key: Hashable,
        lengths: Sequence[int] | None,
        priority: Priority = Priority.NORMAL,
        arrival: Arrival | None = None,
        is_gone: Callable[[], bool] | None = None,
        origin: object | None = None,
        request_id: str = "",
        course: Course | None = None,
    ) -> Ticket:
        """The whole way of a request on its own thread; returns it with its results, or raises."""
        if arrival is not None:
            self._admission.check_own(arrival)
        try:
            self._refuse_worker()
            deadline = self._clock() + self._patience_s(timeout_s)
            ticket = self._ticket(rows, lengths, key, deadline, priority)
            ticket.request_id = request_id
            if not ticket.rows:
                return ticket
            ticket.origin = origin
            try:
                self._admission.admit(ticket, arrival, self.retry_after_s)
            except JitneyError:
                ticket.rows = {}  # no worker will take them out, and rows and request hold each other
                raise
        finally:
            if arrival is not None:
                arrival.release()
        try:
            wait_for(ticket, is_gone, self._admission.abandon, self._clock)
            if ticket.failure is not None:
                raise named(ticket.failure, ticket.failed_rows)
            if course is not None:
                course.end(ticket, self._clock())
            return ticket
        except BaseException as error:
            if course is not None:
                course.end(ticket, self._clock(), error)
            raise
        finally:
            self._admission.leave(ticket)
            # An error's traceback holds this frame, and the ticket holds the error: apart from each other, both are
            # freed when the caller is done with the error, and not when the garbage collector comes.
            del ticket

    def _ticket(
        self, rows: Sequence[Any], lengths: Sequence[int] | None, key: Hashable, deadline: float, priority: Priority
    ) -> Ticket:
        """Everything that can be wrong with a request is found here, on its own thread, and not on the worker's."""
        count = len(rows)
        if lengths is None and self._length_of is not None:
            lengths = [self._length_of(row) for row in rows]
        lengths = [1] * count if lengths is None else checks.row_lengths(lengths, count)
        if type(priority) is not Priority:  # to ask for what it is already takes longer than to see that
            priority = Priority(priority)
        return Ticket.of(rows, lengths, key=key, deadline=deadline, priority=priority)

    def _patience_s(self, timeout_s: float | None) -> float:
        return self._default_timeout_s if timeout_s is None else checks.patience("timeout_s", timeout_s)

    def _refuse_worker(self) -> None:
        """Nothing that waits for a worker thread can be called on one."""
        if self._worker.instances.has_this_thread():
            raise RuntimeError(
                "the worker thread called its own batcher and would wait for itself: "
                "call the function directly, or from another thread"
            )

    def _call(self, key: Hashable, rows: list[Any]) -> Any:
        return self._predict(rows) if key is None else self._predict(rows, key)


def _since(began: float | None, now: float) -> float:
    """Seconds since `began`; 0.0 where nothing has begun."""
    return 0.0 if began is None else max(0.0, now - began)
