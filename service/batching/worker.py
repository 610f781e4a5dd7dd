"""The one thread that owns the model: it collects rows, runs batches, and wakes the callers."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from service.batching import checks
from service.batching.admission import Admission, Inbox, Message, Signal, WorkerState
from service.batching.ceiling import Ceiling
from service.batching.faults import FaultKind, log_error
from service.batching.isolation import Outcomes, run_isolated
from service.batching.lanes import Lane, Lanes
from service.batching.policy import BatchLimits
from service.batching.schedulers import LearningScheduler, Scheduler
from service.batching.tickets import BatchInfo, FlushReason, Job, Row, Ticket, requests_of
from service.errors import PredictionFailed, SchedulerFailed

_log = logging.getLogger("jitney.worker")

# With nothing to do the worker waits for its inbox this long at a time; the stop signal wakes it earlier.
IDLE_WAIT_S = 60.0


class StartFailed(Exception):
    """For `on_start` to raise when it has told the log why already; the worker ends without a traceback."""


class BatchListener(Protocol):
    """Hears what the worker does. Called on the worker thread, with no lock held.

    `on_batch`: a batch has run and its callers are awake; `waits_s` is each row's time in the queue, `errors` has one
    entry for each row that failed. `on_split`: a model call on `size` rows failed and is split. `on_death`: the worker
    has ended by `cause`, everyone has been answered, and the thread is about to end.
    """

    def on_batch(
        self, info: BatchInfo, key: Any, waits_s: Sequence[float], errors: Sequence[PredictionFailed]
    ) -> None: ...

    def on_split(self, kind: FaultKind, size: int, key: Any) -> None: ...

    def on_death(self, cause: BaseException) -> None: ...


# Hears whose rows a batch held: what is told of it, its key, the origin of each row's request, the rows' errors.
OnOrigins = Callable[[BatchInfo, Any, Sequence[object | None], Sequence[PredictionFailed]], None]


class Worker:
    """Everything that the worker thread does; `run` is the body of the thread.

    `predict(key, payloads)` calls the model. `on_origins` is told of a batch after the listener, with the `origin` of
    each row's request, in the order of the rows. `busy_since`, `job_since` and `last_batch_at` are clock readings for
    the health report, written here only.
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
        listener: BatchListener,
        on_start: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
        padded_length: Callable[[Hashable, int], int] | None = None,
        on_origins: OnOrigins | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._admission = admission
        self._inbox = inbox
        self._predict = predict
        self._lanes = lanes
        self._scheduler = scheduler
        self._learning = scheduler if isinstance(scheduler, LearningScheduler) else None
        self._max_batch_tokens = max_batch_tokens
        self._listener = listener
        self._on_start = on_start
        self._on_stop = on_stop
        self._padded_length = padded_length
        self._on_origins = on_origins
        self._clock = clock
        self._batch_ids = itertools.count(1)
        self._seen_abandons = 0
        self._patience_s = IDLE_WAIT_S
        self._jobs: deque[Job] = deque()
        self._job_was_last = False
        self._in_model: list[Row] = []
        self._draining = False
        self.thread_id: int | None = None  # of the thread that is in `run`
        self.ceiling = Ceiling(max_batch_size)
        self.row_s = 0.0
        self.busy_since: float | None = None
        self.job_since: float | None = None
        self.last_batch_at: float | None = None

    def run(self) -> None:
        """Load, serve until told to stop, and leave nobody waiting whatever happens."""
        self.thread_id = threading.get_ident()
        try:
            if self._on_start is not None:
                self._on_start()
            self._admission.advance(WorkerState.RUNNING)
            while self._jobs or self._lanes or not self._draining:
                self.turn()
        except BaseException as error:
            # The last line of the thread: whatever ended it, everyone who waits is told.
            self._end(WorkerState.DEAD, error)
            shown = None if isinstance(error, StartFailed) else error
            where = f" on {requests_of(self._in_model)}" if self._in_model else ""
            self._in_model = []
            log_error(_log, logging.CRITICAL, "the inference worker has ended%s", where, error=shown)
            self._tell(self._listener.on_death, error)
        else:
            self._end(WorkerState.STOPPED, None)
            if self._on_stop is not None:
                self._tell(self._on_stop)
        finally:
            self.thread_id = None  # the system may give its number to another thread

    def _end(self, state: WorkerState, cause: BaseException | None) -> None:
        self._admission.advance(state, cause=cause)
        self.busy_since = self.job_since = None
        self._admission.fail_everyone("the inference worker ended before it answered", cause)

    def turn(self) -> None:
        """Receive what has come, then do one job, or send at most one batch; jobs and batches take turns."""
        company_s = self._receive()
        if self._jobs and not self._job_was_last:
            self._job_was_last = True
            self._do(self._jobs.popleft())
            # A job may take long: what came meanwhile must be received before a batch is chosen.
            self._patience_s = 0.0
            return
        self._job_was_last = False
        # The inbox is drained before the clock is read: reading it first would judge a backlog by a stale time.
        now = self._clock()
        if self._admission.abandons != self._seen_abandons:
            self._seen_abandons = self._admission.abandons
            self._lanes.drop_expired(now)
        limits = BatchLimits(self.ceiling.rows, self._max_batch_tokens)
        ready = self._lanes.ready(
            now,
            limits,
            draining=self._draining,
            patience_s=company_s,
            is_enough=lambda lane: self._is_enough(lane, limits),
        )
        if ready is None:
            self._patience_s = 0.0 if self._jobs else self._patience(now, company_s)
            return
        lane, reason = ready
        self._serve(lane, limits, reason)
        # When nothing is left, another look before the next wait would be in vain.
        self._patience_s = 0.0 if self._lanes or self._jobs else IDLE_WAIT_S

    def _is_enough(self, lane: Lane, limits: BatchLimits) -> bool:
        """Whether the scheduler knows that further rows would make no batch of the lane cheaper."""
        if self._learning is None or (front := next(lane.in_order(), None)) is None:
            return False
        try:
            return lane.rows >= self._learning.enough(front, limits)
        except Exception as error:
            log_error(_log, logging.ERROR, "the scheduler failed to tell whether rows are enough", error=error)
            return False

    def _patience(self, now: float, company_s: float) -> float:
        """How long the worker may wait for a message when no batch may leave yet, seconds; never below zero, because
        a lane that is due is ready.
        """
        due_at = self._lanes.due_at(company_s)
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

    def _do(self, job: Job) -> None:
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
        for row in rows:
            error = SchedulerFailed("the scheduler failed while it formed a batch")
            error.__cause__ = cause
            row.ticket.fail(error, row)
        self._finish(lane, rows)
        told = "the scheduler failed; %d rows get an error, of %s"
        log_error(_log, logging.ERROR, told, len(rows), requests_of(rows), error=cause)

    def _serve(self, lane: Lane, limits: BatchLimits, reason: FlushReason) -> None:
        """Run the next batch of a lane and answer its callers."""
        rows = self._claim(lane, limits)
        self._lanes.tidy(lane)
        if not rows:
            return
        started_at = self.busy_since = self._clock()
        self._in_model = rows
        outcomes = run_isolated(
            lambda payloads: self._predict(lane.key, payloads),
            rows,
            wanted=lambda row: not row.ticket.expired(self._clock()),
            on_split=lambda kind, size: self._on_split(kind, size, lane.key),
        )
        ended_at = self._clock()
        self._in_model = []
        lengths = [row.length for row in rows]
        info = BatchInfo(
            batch_id=next(self._batch_ids),
            size=len(rows),
            reason=reason,
            started_at=started_at,
            model_s=ended_at - started_at,
            runs=outcomes.runs,
            tokens=sum(lengths),
            padded_length=self._padded(lane.key, max(lengths)),
        )
        self._deliver(lane, rows, outcomes, info)
        # An error of the model keeps this frame alive, and its caller keeps the error. The frame lets go of both the
        # rows and their errors here, or they would keep each other until the garbage collector comes.
        del rows, outcomes

    def _padded(self, key: Hashable, longest: int) -> int:
        """To what length the model padded the batch; the longest row's where that is not told, or is nonsense."""
        if self._padded_length is None:
            return longest
        try:
            padded = self._padded_length(key, longest)
            return longest if padded is longest else checks.whole("padded_length", padded, longest)
        except Exception as error:
            log_error(_log, logging.ERROR, "padded_length() failed; the longest row's length is used", error=error)
            return longest

    def _deliver(self, lane: Lane, rows: list[Row], outcomes: Outcomes, info: BatchInfo) -> None:
        if outcomes.runs == 1:
            self.ceiling.succeeded(len(rows))
        for position, row in enumerate(rows):
            if position in outcomes.errors:
                outcomes.errors[position].request_id = row.ticket.request_id
                row.ticket.fail(outcomes.errors[position], row)
            elif position not in outcomes.left_out:
                row.ticket.answer(row, outcomes.results[position], info)
        self._finish(lane, rows)
        self.busy_since = None
        self.last_batch_at = info.started_at + info.model_s
        self._observe_pace(info)
        # The callers are awake already: what is counted here costs none of them any time.
        waits_s = [info.started_at - row.ticket.enqueued_at for row in rows]
        errors = list(outcomes.errors.values())
        if self._learning is not None and outcomes.runs == 1 and not errors:
            self._tell(self._learning.learn, lane.name, info.size, info.padded_length, info.model_s)
        self._tell(self._listener.on_batch, info, lane.key, waits_s, errors)
        if self._on_origins is not None:
            self._tell(self._on_origins, info, lane.key, [row.ticket.origin for row in rows], errors)

    def _on_split(self, kind: FaultKind, size: int, key: Hashable) -> None:
        if kind is FaultKind.OUT_OF_MEMORY:
            self.ceiling.lower(size)
        self._tell(self._listener.on_split, kind, size, key)

    def _tell(self, hear: Callable[..., None], *news: Any) -> None:
        """Call whoever listens, or frees the model; neither may cost a caller the answer."""
        try:
            hear(*news)
        except Exception as error:
            log_error(_log, logging.ERROR, "a listener of the inference worker failed", error=error)

    def _finish(self, lane: Lane, rows: Sequence[Row]) -> None:
        """Wake every caller whose request is complete or has failed, once each."""
        tickets = {row.ticket: None for row in rows}
        failed = [ticket for ticket in tickets if ticket.failure is not None]
        if failed:
            self._admission.give_up(failed)
            lane.drop(self._clock())
            self._lanes.tidy(lane)
        for ticket in tickets:
            if ticket.unanswered == 0 or ticket.failure is not None:
                ticket.done.set()

    def _observe_pace(self, info: BatchInfo) -> None:
        """Keep a running mean of the time per row, for the answer to "when is there room again"."""
        row_s = info.model_s / info.size
        self.row_s = row_s if self.row_s == 0.0 else 0.8 * self.row_s + 0.2 * row_s
