"""The threads that own the model: they collect rows, run batches, and wake the callers. Usually it is one."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from service.batching.admission import Admission, Inbox, Message, Signal, WorkerState
from service.batching.delivery import Delivery
from service.batching.faults import log_error
from service.batching.instances import Instance, Instances
from service.batching.isolation import run_isolated
from service.batching.lanes import Lane, Lanes
from service.batching.listeners import Listeners, tell
from service.batching.policy import BatchLimits, PackedShape, each_alone, side_by_side
from service.batching.schedulers import LearningScheduler, Scheduler
from service.batching.tickets import Batch, Job, Row, Ticket, requests_of
from service.errors import SchedulerFailed

_log = logging.getLogger("jitney.worker")

# With nothing to do the worker waits for its inbox this long at a time; the stop signal wakes it earlier.
IDLE_WAIT_S = 60.0


class StartFailed(Exception):
    """For `on_start` to raise when it has told the log why already; the worker ends without a traceback."""


class Worker:
    """Everything that the worker threads do; `run` is the body of each.

    `predict(key, payloads)` calls the model. `is_pipelined(key)`: its batches run one after the other, whichever thread
    has them, so that with one of them in the model another thread takes the next only when it is full. `job_since` is a
    clock reading for the health report.

    One thread at a time is the leader: it waits at the inbox, does jobs, and chooses batches. Inbox, lanes, jobs and
    scheduler are its own, and need no other lock. With a batch in its hands it lets the next thread lead, and calls the
    model. A job is done when no batch is in the model, and none gets there before the job has ended.
    """

    def __init__(
        self,
        admission: Admission,
        inbox: Inbox,
        predict: Callable[[Hashable, list[Any]], Any],
        *,
        lanes: Lanes,
        scheduler: Scheduler,
        max_batch_size: int,
        max_batch_tokens: int | None,
        listeners: Listeners,
        instances: int = 1,
        on_start: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
        padded_length: Callable[[Hashable, int], int] | None = None,
        is_pipelined: Callable[[Hashable], bool] = side_by_side,
        packing: Callable[[Hashable], PackedShape | None] = each_alone,
        clock: Callable[[], float],
    ) -> None:
        self._admission = admission
        self._inbox = inbox
        self._predict = predict
        self._lanes = lanes
        self._scheduler = scheduler
        self._learning = scheduler if isinstance(scheduler, LearningScheduler) else None
        self._max_batch_tokens = max_batch_tokens
        self._listeners = listeners
        self._on_start = on_start
        self._on_stop = on_stop
        self._is_pipelined = is_pipelined
        self._packing = packing
        self._clock = clock
        self.instances = Instances(instances)
        self.delivery = Delivery(
            admission,
            listeners,
            max_batch_size=max_batch_size,
            learns=self._learning is not None,
            padded_length=padded_length,
            packing=packing,
        )
        # Who has it leads. Nobody waits for it longer than the leader does for a message, or a job takes.
        self._leading = threading.Lock()
        # Of the leader, but for the first thread that dies, which sets `_is_over`.
        self._seen_abandons = 0
        self._patience_s = IDLE_WAIT_S
        self._jobs: deque[Job] = deque()
        self._job_was_last = False
        self._draining = False
        self._is_over = False
        self._ending = threading.Lock()  # guards _left, and the step from serving to the end
        self._left = 0
        self.job_since: float | None = None

    @property
    def effective_max_batch_size(self) -> int:
        """How many rows memory allows in a batch now."""
        return self.delivery.ceiling.rows

    @property
    def row_s(self) -> float:
        """How long a row takes, at the pace measured so far, when all threads are busy; seconds."""
        return self.delivery.row_s / len(self.instances)

    def run(self, number: int = 0) -> None:
        """Load, serve until told to stop, and leave nobody waiting whatever happens; number: of the instance."""
        mine = self.instances.enter(number)
        try:
            self._begin(mine)
            while self._take_batch(mine):
                self._serve(mine)
        except BaseException as error:
            # The last line of the thread: whatever ended it, everyone who waits is told.
            self._die(mine, error)
        else:
            self._retire()
        finally:
            self.instances.leave()

    def _begin(self, mine: Instance) -> None:
        """The first thread makes the start; until its end nothing comes in that the others could do."""
        if mine is not self.instances.first:
            return
        if self._on_start is not None:
            self._on_start()
        self._admission.advance(WorkerState.RUNNING)

    def _take_batch(self, mine: Instance) -> bool:
        """Lead until there is a batch; False when there is none left, and never will be."""
        with self._leading:
            while mine.batch is None:
                if self._is_finished():
                    return False
                self._lead(mine)
        return True

    def _is_finished(self) -> bool:
        return self._is_over or (self._draining and not self._jobs and not self._lanes)

    def _die(self, mine: Instance, cause: BaseException) -> None:
        """One thread has ended by a fault, and the others are to follow it."""
        with self._ending:
            is_first, self._is_over = not self._is_over, True
        where = ""
        if mine.busy_since is not None and mine.batch is not None:
            where = f" on {requests_of(mine.batch.rows)}"
        self.instances.done(mine)
        shown = None if isinstance(cause, StartFailed) else cause
        if is_first:
            self._end(WorkerState.DEAD, cause)
        log_error(_log, logging.CRITICAL, "the inference worker has ended%s", where, error=shown)
        if is_first:
            if len(self.instances) > 1:
                self._inbox.put(Signal.STOP)  # whoever leads waits there
            self._listeners.death(cause)

    def _retire(self) -> None:
        """There is nothing left to do; the last thread to see that ends the service."""
        with self._ending:
            self._left += 1
            is_last = self._left == len(self.instances) and not self._is_over
        if not is_last:
            return
        self._end(WorkerState.STOPPED, None)
        if self._on_stop is not None:
            tell(self._on_stop)

    def _end(self, state: WorkerState, cause: BaseException | None) -> None:
        self._admission.advance(state, cause=cause)
        self.job_since = None
        self._admission.fail_everyone("the inference worker ended before it answered", cause)

    def _lead(self, mine: Instance) -> None:
        """Receive what has come, then do one job, or take at most one batch; jobs and batches take turns."""
        self._learn()  # also before the wait, which may be long
        company_s = self._receive()
        self._learn()
        if self._jobs and not self._job_was_last:
            self._job_was_last = True
            self._do(self._jobs.popleft(), mine)
            # A job may take long: what came meanwhile must be received before a batch is chosen.
            self._patience_s = 0.0
            return
        self._job_was_last = False
        self._choose(mine, company_s)

    def _choose(self, mine: Instance, company_s: float) -> None:
        """Take a batch, if one may leave; otherwise find out for how long none may."""
        # The inbox is drained before the clock is read: reading it first would judge a backlog by a stale time.
        now = self._clock()
        if self._admission.abandons != self._seen_abandons:
            self._seen_abandons = self._admission.abandons
            self._lanes.drop_expired(now)
        # Once for all lanes, and after the inbox was drained: of a batch that comes back later a message will tell.
        one_is_ahead = self.instances.one_is_ahead

        def is_behind(lane: Lane) -> bool:
            return one_is_ahead and self._is_pipelined(lane.key)

        limits = BatchLimits(self.effective_max_batch_size, self._max_batch_tokens)
        ready = self._lanes.ready(
            now,
            limits,
            draining=self._draining,
            patience_s=company_s,
            is_enough=lambda lane: self._is_enough(lane, limits),
            is_behind=is_behind,
        )
        if ready is None:
            self._patience_s = 0.0 if self._jobs else self._patience(now, company_s, is_behind)
            return
        lane, reason = ready
        rows = self._claim(lane, self._share(lane, limits))
        self._lanes.tidy(lane)
        if rows:
            mine.batch = Batch(lane.name, rows, reason, is_behind(lane))
            mine.is_ahead = self._is_shared(lane)
        # When nothing is left, another look before the next wait would be in vain.
        self._patience_s = 0.0 if self._lanes or self._jobs else IDLE_WAIT_S

    def _share(self, lane: Lane, limits: BatchLimits) -> BatchLimits:
        """The limits of the next batch: it leaves rows to the other threads that have nothing to do meanwhile, unless
        their batch would only run after this one.
        """
        if len(self.instances) == 1 or self._is_shared(lane):
            return limits
        idle = self.instances.idle
        all_rows = lane.rows + self.instances.rows_of(lane.name)
        limits = replace(limits, share=-(-all_rows // len(self.instances)))
        return limits if idle < 2 else replace(limits, max_rows=min(limits.max_rows, max(1, -(-lane.rows // idle))))

    def _is_shared(self, lane: Lane) -> bool:
        """Whether batches of several threads follow each other through the one copy of the lane's model."""
        return len(self.instances) > 1 and self._is_pipelined(lane.key)

    def _learn(self) -> None:
        """Let the scheduler hear what batches took, whichever thread ran them."""
        lessons = self.delivery.lessons
        while lessons and self._learning is not None:
            tell(self._learning.learn, *lessons.popleft())

    def _is_enough(self, lane: Lane, limits: BatchLimits) -> bool:
        """Whether the scheduler knows that further rows would make no batch of the lane cheaper."""
        if self._learning is None or (front := next(lane.in_order(), None)) is None:
            return False
        try:
            return lane.rows >= self._learning.enough(front, limits)
        except Exception as error:
            log_error(_log, logging.ERROR, "the scheduler failed to tell whether rows are enough", error=error)
            return False

    def _patience(self, now: float, company_s: float, is_behind: Callable[[Lane], bool]) -> float:
        """How long the worker may wait for a message when no batch may leave yet, seconds; never below zero, because
        a lane that is due is ready, or behind: and then a message tells when it is not any more.
        """
        due_at = self._lanes.due_at(company_s, is_behind)
        return IDLE_WAIT_S if due_at is None else min(IDLE_WAIT_S, due_at - now)

    def _receive(self) -> float:
        """Wait for one message, then take all that are there in one step; returns how long rows wait for company now.

        Who is on the way is counted in the order of that way, and before the inbox is emptied: a request that is not
        counted at one place because it has left it is found at a later one, the inbox at last.
        """
        if self._patience_s > 0:
            with suppress(queue.Empty):
                self._accept(self._inbox.get(timeout=self._patience_s))
        company = self._lanes.company
        unread = company.unread()
        announced = self._admission.still_on_the_way()
        for message in self._inbox.drain():
            self._accept(message)
        return company.patience_s(announced=announced, unread=unread)

    def _accept(self, message: Message) -> None:
        if isinstance(message, Ticket):
            self._lanes.add(message)
        elif isinstance(message, Job):
            self._jobs.append(message)
        elif message is Signal.STOP:
            self._draining = True

    def _do(self, job: Job, mine: Instance) -> None:
        self.instances.wait_for_others(mine)
        if self._is_over:
            return  # whoever died meanwhile has told everyone, and the model may not be what it was
        self.job_since = self._clock()
        try:
            if job.is_wanted:
                job.result = job.run()
        except Exception as error:
            job.failure = error
            if not job.awaited:
                log_error(_log, logging.ERROR, "a job of the inference worker failed", error=error)
        self.job_since = None
        self._admission.jobs.pop(job, None)
        job.done.set()

    def _claim(self, lane: Lane, limits: BatchLimits) -> list[Row]:
        """Choose and take the rows of the next batch; empty when the lane is not what it seemed, and must be judged
        again without those who left or failed.
        """
        try:
            if self._packing(lane.key) is not None:
                limits = replace(limits, packs=True)
            rows = lane.select(self._scheduler, limits)
        except Exception as error:
            self._fail_front(lane, limits, error)
            return []
        now = self._clock()
        if rows and self._admission.claim(rows, now):
            lane.take(rows, now)
            return rows
        lane.drop(now)
        return []

    def _fail_front(self, lane: Lane, limits: BatchLimits, cause: Exception) -> None:
        rows = lane.front(limits)
        errors = []
        for _ in rows:
            error = SchedulerFailed("the scheduler failed while it formed a batch")
            error.__cause__ = cause
            errors.append(error)
        self.delivery.fail(rows, errors)
        lane.drop(self._clock())
        told = "the scheduler failed; %d rows get an error, of %s"
        log_error(_log, logging.ERROR, told, len(rows), requests_of(rows), error=cause)

    def _serve(self, mine: Instance) -> None:
        """Run the batch that this thread has, and answer its callers."""
        batch = mine.batch
        assert batch is not None
        key = batch.lane.key
        started_at = mine.busy_since = self._clock()
        outcomes = run_isolated(
            lambda payloads: self._predict(key, payloads),
            batch.rows,
            wanted=lambda row: not row.ticket.expired(self._clock()),
            on_split=lambda kind, size: self.delivery.split(kind, size, key),
        )
        ended_at = self._clock()
        mine.busy_since = None
        self._let_next_pass(mine)
        self.delivery.deliver(batch, outcomes, started_at, ended_at)
        self.instances.done(mine)
        # An error of the model keeps this frame alive, and its caller keeps the error. The frame lets go of both the
        # rows and their errors here, or they would keep each other until the garbage collector comes.
        del batch, outcomes

    def _let_next_pass(self, mine: Instance) -> None:
        """The device is done with the batch: whoever leads may have rows that waited for that. *In this order*: a
        leader that takes the message sees that the batch is not ahead any more.
        """
        if mine.is_ahead:
            mine.is_ahead = False
            self._inbox.put(Signal.WAKE)
