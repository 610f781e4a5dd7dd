"""`RemoteBatcher`: stands in a front end where a `ThreadedBatcher` would, and has another process do the work."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from service.batching import checks
from service.batching.admission import Admission, Arrival, WorkerState
from service.batching.course import Course
from service.batching.inbox import DrainedQueue
from service.batching.policy import nobody
from service.batching.status import BatcherStatus
from service.batching.tickets import Answer, BatchInfo, Priority, Ticket
from service.batching.waiting import answer_of, named, wait_for
from service.errors import Draining, JitneyError, NotReady, PredictionFailed, WorkerDead
from service.sharing.asking import Asked, Lane, Told, answered
from service.sharing.description import restored
from service.sharing.failures import restored_load_error
from service.sharing.frames import Frame, FrameError, FrameKind
from service.sharing.link import Link
from service.sharing.state import OwnerState, as_status, heard

_log = logging.getLogger("jitney")

# Between two tries to reach the owner, seconds: the second is longer, and so on up to the last.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

# Batches whose number is remembered, so that one which holds rows of several requests is told once.
_BATCHES_KNOWN = 512

_REPLACED = "the process that owns the model has ended and is being replaced"


class OwnerListener(Protocol):
    """Who hears of the owner. All of it is called on the batcher's own thread."""

    def owner_has_loaded(self, model: ModelHandle, sample: Any | None) -> None:
        """The model is there, for the first time or anew; what came before is served no longer."""

    def owner_has_failed(self, error: ModelError) -> None:
        """The model could not be loaded."""

    def owner_has_run(self, model: ModelHandle, info: BatchInfo, longest_wait_s: float) -> None:
        """A batch with rows of this process, that waited for it so long at most, has run; told once."""


class RemoteBatcher:
    """Has the owner at `address` batch and answer; asks and refuses as `ThreadedBatcher` does, in the same words.

    Where the connection ends, everyone who waits gets WorkerDead at once, and so does whoever asks until another
    owner has told of its model. lane_of: what of a key goes to the owner. model_of: the model of a key. given: the
    app's own model, whose input is known here. origin_text: what the owner is to know of an `origin` of `ask`.
    on_the_way: see `ThreadedBatcher`; the owner is told, and waits for them as a batcher does for its own.

    *Thread:* any thread may call any method.
    """

    def __init__(
        self,
        address: str,
        *,
        listener: OwnerListener,
        model_of: Callable[[Any], ModelHandle],
        lane_of: Callable[[Any], Lane],
        max_batch_size: int,
        max_batch_latency_s: float,
        default_timeout_s: float,
        given: ModelHandle | None = None,
        origin_text: Callable[[object], str | None] = str,
        on_the_way: Callable[[], int] = nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._listener = listener
        self._model_of = model_of
        self._lane_of = lane_of
        self._max_batch_latency_s = max_batch_latency_s
        self._default_timeout_s = default_timeout_s
        self._given = given
        self._origin_text = origin_text
        self._on_the_way = on_the_way
        self._clock = clock
        self._numbers = itertools.count(1)
        self._unserved = OwnerState(clock(), WorkerState.STARTING, 0, 0.0, 0.0, None, None, None, None, max_batch_size)
        self._heard = self._unserved
        self._batches_known: dict[int, None] = {}
        # Nobody waits for requests that are on their way to another process.
        self._no_arrival = Admission(DrainedQueue(), 1, counts_arrivals=False).announce()
        self._started = threading.Event()  # there is a model, or never will be one
        self._closing = threading.Event()
        # Guards the five below. `_pending`: requests without an answer; `_rows`: how many rows they have.
        self._lock = threading.Lock()
        self._state = WorkerState.NEW
        self._cause: BaseException | None = None
        self._link: Link | None = None
        self._pending: dict[int, Ticket] = {}
        self._rows = 0
        self._emptied = threading.Condition(self._lock)
        self._model: ModelHandle | None = None  # only the batcher's own thread writes it
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<RemoteBatcher {self._state} pending={len(self._pending)} rows={self._rows}>"

    def start(self) -> None:
        """Look for the owner in the background; again is harmless."""
        with self._lock:
            if self._state is not WorkerState.NEW:
                return
            self._state = WorkerState.STARTING
            self._thread = threading.Thread(target=self._run, name="jitney-link", daemon=True)
            self._thread.start()

    def wait_started(self, timeout_s: float) -> bool:
        """Wait until rows are taken, or never will be; False after `timeout_s`."""
        return self._started.wait(min(timeout_s, threading.TIMEOUT_MAX))

    def close(self, timeout_s: float = 30.0) -> bool:
        """Take no new work, wait for the answers to what was asked, and leave the owner; True where all came."""
        with self._lock:
            if self._state is not WorkerState.DEAD:
                self._state = WorkerState.DRAINING
            all_came = self._emptied.wait_for(lambda: not self._pending, min(timeout_s, threading.TIMEOUT_MAX))
            self._closing.set()
            link, thread = self._link, self._thread
        if link is not None:
            link.close()
        self._fail_everyone("the batcher was closed before the model answered")
        self._started.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LONGEST_PAUSE_S)
        with self._lock:
            if self._state is not WorkerState.DEAD:
                self._state = WorkerState.STOPPED
        return all_came

    def ask(
        self,
        rows: Sequence[Any],
        timeout_s: float | None = None,
        *,
        key: Hashable = None,
        lengths: Sequence[int] | None = None,
        priority: Priority = Priority.NORMAL,
        arrival: Arrival | None = None,  # noqa: ARG002 - see `announce`
        is_gone: Callable[[], bool] | None = None,
        origin: object | None = None,
        request_id: str = "",
        course: Course | None = None,
    ) -> Answer:
        """One result per row, with what is known of their batches; see `ThreadedBatcher.ask`."""
        patience_s = self._default_timeout_s if timeout_s is None else checks.patience("timeout_s", timeout_s)
        count = len(rows)
        lengths = [1] * count if lengths is None else checks.row_lengths(lengths, count)
        ticket = Ticket.of(rows, lengths, key=key, deadline=self._clock() + patience_s, priority=Priority(priority))
        ticket.rows = {}  # they wait at the owner
        if not count:
            return answer_of(ticket)
        request = Asked(
            *(next(self._numbers), patience_s, ticket.priority, request_id, list(rows), list(lengths)),
            origin=None if origin is None else self._origin_text(origin),
        )
        link = self._enter(request.number, ticket, key, count)
        try:
            link.ask(self._lane_of(key), request)
            wait_for(ticket, is_gone, partial(self._forget, request.number), self._clock)
            if ticket.failure is not None:
                raise named(ticket.failure, ticket.failed_rows)
            if course is not None:
                course.end(ticket, self._clock())
            return answer_of(ticket)
        except PredictionFailed as error:
            # Of requests that end in another way the owner tells nothing: they may have waited there, or run.
            if course is not None:
                course.end(ticket, self._clock(), error)
            raise
        finally:
            if not ticket.done.is_set():
                self._forget(request.number, ticket)
                link.cancel(request.number)
            # As in `ThreadedBatcher`: an error's traceback holds this frame, and the ticket the error.
            del ticket

    def call(
        self,
        run: Callable[[], Any],
        timeout_s: float | None = None,  # noqa: ARG002 - nobody is waited for
        *,
        is_gone: Callable[[], bool] | None = None,  # noqa: ARG002
    ) -> Any:
        """Call `run` now: what a front end has of a model belongs to no thread."""
        return run()

    def post(self, run: Callable[[], Any]) -> None:
        """Call `run` now."""
        run()

    def announce(self) -> Arrival:
        """An arrival that nobody waits for: the owner sees requests when they come to it."""
        return self._no_arrival

    def status(self, belongs: Callable[[Any], bool] | None = None) -> BatcherStatus:  # noqa: ARG002
        """What the owner told last; all of its rows belong to the one model there is."""
        with self._lock:
            state, cause, heard, rows = self._state, self._cause, self._heard, self._rows
        if state is not WorkerState.RUNNING:
            heard = self._unserved._replace(state=state, at=self._clock())
        return as_status(heard, queued_here=rows, cause=cause, now=self._clock())

    @property
    def effective_max_batch_size(self) -> int:
        """How many rows memory allows in a batch now."""
        return self._heard.effective_max_batch_size

    @property
    def queued(self) -> int:
        """How many rows wait for a batch: of the whole service, as told last, or of this process if those are more."""
        return max(self._heard.queued, self._rows - self._heard.effective_max_batch_size)

    def retry_after_s(self, queued: int) -> float:
        """When so many rows that wait will have been served, at the owner's pace; seconds."""
        return max(self._max_batch_latency_s, queued * self._heard.row_s)

    # How requests come and go.

    def _enter(self, number: int, ticket: Ticket, key: Any, count: int) -> Link:
        """Count a request, or raise why it cannot be asked for."""
        with self._lock:
            link = self._link
            if self._state is not WorkerState.RUNNING or link is None:
                raise self._refusal() from self._cause
            if self._model_of(key) is not self._model:
                raise WorkerDead(_REPLACED)
            ticket.enqueued_at = ticket.turn_at = self._clock()
            self._pending[number] = ticket
            self._rows += count
            return link

    def _forget(self, number: int, ticket: Ticket) -> bool:
        """Withdraw a request; False where its answer is there already."""
        with self._lock:
            if ticket.done.is_set():
                return False
            self._take_out(number)
            return True

    def _take_out(self, number: int) -> Ticket | None:
        ticket = self._pending.pop(number, None)
        if ticket is not None:
            self._rows -= len(ticket.results)
            if not self._pending:
                self._emptied.notify_all()
        return ticket

    def _fail_everyone(self, message: str) -> None:
        with self._lock:
            tickets = list(self._pending.values())
            self._pending.clear()
            self._rows = 0
            self._emptied.notify_all()
            for ticket in tickets:
                ticket.fail(WorkerDead(message))
                ticket.done.set()

    def _fail(
        self,
        number: int,
        error: JitneyError,
        rows: tuple[int, ...] = (),
        batches: Sequence[BatchInfo | None] = (),
    ) -> None:
        with self._lock:
            ticket = self._take_out(number)
            if ticket is not None:
                ticket.failure, ticket.failed_rows = error, rows
                if len(batches) == len(ticket.batches):
                    ticket.batches = list(batches)
                ticket.done.set()

    def _refusal(self) -> JitneyError:
        if self._state in (WorkerState.NEW, WorkerState.STARTING):
            return NotReady("the model is still loading") if self._model is None else WorkerDead(_REPLACED)
        if self._state is WorkerState.DEAD:
            return WorkerDead("the inference worker has ended and is being replaced")
        return Draining("the service is stopping and takes no new work")

    # The batcher's own thread.

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closing.is_set():
            model = self._model
            link = self._connect()
            if link is not None:
                link.hear(self._take)
                self._lose()
            pause_s = _FIRST_PAUSE_S if self._model is not model else min(2 * pause_s, _LONGEST_PAUSE_S)
            self._closing.wait(pause_s)

    def _connect(self) -> Link | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._address)
        except OSError:
            connection.close()
            return None
        link = Link(connection, self._fail, self._on_the_way)
        with self._lock:
            self._link = link
            if not self._closing.is_set():
                return link
        link.close()  # `close` came before there was a link for it
        return link

    def _lose(self) -> None:
        """The connection has ended, and whoever waits would wait in vain."""
        self._heard = self._unserved._replace(at=self._clock())
        with self._lock:
            self._link = None
            if self._state is WorkerState.RUNNING:
                self._state = WorkerState.STARTING
                self._cause = WorkerDead(_REPLACED)
                _log.critical("%s; its callers are told", _REPLACED)
        self._fail_everyone("the process that owns the model ended before it answered")

    def _take(self, frame: Frame) -> None:
        if frame.kind is FrameKind.ANSWER:
            self._deliver(answered(frame))
        elif frame.kind is FrameKind.STATE:
            self._heard = heard(frame.head)
            if self._heard.state is WorkerState.DEAD and self._state is WorkerState.RUNNING:
                raise FrameError("its worker thread has ended")
        elif frame.kind is FrameKind.MODEL:
            self._serve(*restored(frame.head, frame.body, self._given))
        elif frame.kind is FrameKind.FAILED:
            self._give_up(restored_load_error(frame.head))
        else:
            raise FrameError(f"a frame of kind {frame.kind.name} goes to the owner only")

    def _serve(self, model: ModelHandle, sample: Any | None) -> None:
        self._listener.owner_has_loaded(model, sample)
        self._batches_known.clear()
        with self._lock:
            self._model = model
            if self._state is WorkerState.STARTING:
                self._state, self._cause = WorkerState.RUNNING, None
        _log.info("model %s version %s can be asked for at its owner", model.name, model.version)
        self._started.set()

    def _give_up(self, error: ModelError) -> None:
        with self._lock:
            self._state, self._cause = WorkerState.DEAD, error
        self._listener.owner_has_failed(error)
        self._started.set()

    def _deliver(self, outcomes: Sequence[Told]) -> None:
        waits_s: dict[BatchInfo, float] = {}
        for told in outcomes:
            if told.failure is not None:
                self._fail(told.number, told.failure, told.failed_rows, told.batches)
            elif (ticket := self._answer(told)) is not None:
                for info in filter(None, told.batches):
                    waits_s[info] = max(waits_s.get(info, 0.0), info.started_at - ticket.enqueued_at)
        self._tell_of_batches(waits_s)

    def _answer(self, told: Told) -> Ticket | None:
        """Wake a request's own thread; None where it has left already."""
        with self._lock:
            ticket = self._take_out(told.number)
            if ticket is None:
                return None
            if len(ticket.results) == len(told.results):
                ticket.results, ticket.batches = told.results, list(told.batches)
            else:
                ticket.fail(WorkerDead("the process that owns the model gave another number of results"))
            ticket.done.set()
            return ticket

    def _tell_of_batches(self, waits_s: dict[BatchInfo, float]) -> None:
        """Of those that have not been told of: a batch may hold rows of several requests, which end at their time."""
        model = self._model
        for info, longest_wait_s in waits_s.items():
            if model is not None and info.batch_id not in self._batches_known:
                self._batches_known[info.batch_id] = None
                self._listener.owner_has_run(model, info, longest_wait_s)
        while len(self._batches_known) > _BATCHES_KNOWN:
            del self._batches_known[next(iter(self._batches_known))]
