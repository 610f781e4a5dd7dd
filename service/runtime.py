"""The running heart of an app: it starts, watches and stops the batcher with its model."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from loaders.cache import Key
from loaders.errors import ModelError
from loaders.handle import ModelHandle
from service.batching.admission import Arrival, WorkerState
from service.batching.any_batcher import AnyBatcher
from service.batching.batcher import ThreadedBatcher
from service.batching.cost_table import BestSize
from service.batching.faults import FaultKind, log_error, text_of
from service.batching.forks import forks
from service.batching.policy import nobody
from service.batching.schedulers import Fifo, LearningScheduler, NoScheduler, Scheduler, make_scheduler
from service.batching.status import BatcherStatus
from service.batching.tickets import BatchInfo
from service.batching.worker import StartFailed
from service.errors import DeadlineExceeded, Draining, Forbidden, NotReady, PredictionFailed, WorkerDead
from service.lane_key import LaneKey, padded_length, plain_lane
from service.metrics.batches import BatchMetrics
from service.models.filling import FilledCalls
from service.models.keeper import KnownVersion, ModelKeeper, log_load_failure
from service.models.loaded import Lease
from service.models.measuring import Learn
from service.models.placing import PlacedModels
from service.recent import RecentBatches
from service.settings import Settings
from service.statistics import ModelStatistics

if TYPE_CHECKING:
    from service.tracing.tracing import Tracing

_log = logging.getLogger("jitney")

# How long the first request of a server without start-up hooks waits for a model that is in memory already.
READY_WAIT_S = 5.0

# How often a request that waits for room in memory looks whether there still is somebody to make it, seconds.
_ROOM_CHECK_S = 0.25

# Why a request for a model that was not loaded may end without an answer, and what changes that.
_NOT_LOADED_IN_TIME = "the model had to be loaded first; MODEL_CACHE_SIZE versions stay loaded, REQUEST_TIMEOUT_MS"

# Every runtime of this process that somebody still holds, for server hooks that cannot see through a wrapped app.
_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_process_lock = threading.Lock()  # guards _runtimes, and the renewal of a runtime in a child process


def _free_lock_in_child() -> None:
    """A thread that is not there any more may have held it."""
    global _process_lock
    _process_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_lock_in_child)


def runtimes() -> list[Runtime]:
    """The runtimes of this process, in no particular order, whatever middleware their apps are wrapped in."""
    with _process_lock:
        return list(_runtimes)


class Runtime:
    """The models of a service behind one batcher.

    `start` and `close` may be called more than once and from any thread. `on_fatal(reason)` is called on the worker
    thread when this process cannot serve any more; whoever runs the process decides what follows.

    In a child process it has not been started, whatever its parent did with it: threads do not survive a fork. `start`
    or the first request starts it anew there; a model that comes from a path is loaded again.

    `count_unseen(method, status, seconds)` is for the server, which answers some requests before the app can see them.

    `on_the_way()`: how many requests the server has received that are not announced yet; a server that knows sets it
    before `start`.

    `serves_alone`: the app has no routes but Jitney's. `placed`: has the threads of this process placed; set before
    `start` by whoever knows those threads.

    `tracing`: records what runs here, and begins and ends with it; None where nothing is recorded.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: BatchMetrics,
        model_handle: ModelHandle | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.tracing = tracing
        self.load_error: BaseException | None = None
        self.draining = False
        self.on_fatal: Callable[[str], None] = lambda _reason: None
        self.count_unseen: Callable[[str, int, float], None] = lambda _method, _status, _seconds: None
        self.on_the_way: Callable[[], int] = nobody
        self.serves_alone = False
        self.placed: PlacedModels | None = None
        self.recent = RecentBatches()  # made anew at the start
        self._given = model_handle
        self._lock = threading.Lock()  # guards _batcher and _closed
        self._batcher: AnyBatcher | None = None
        self._owner: Callable[[Runtime], AnyBatcher] | None = None
        self._closed = False
        self._ready = False  # all that is served from the start is loaded; the worker sets it
        self._started_by_request = False
        self._forks = forks()
        self._inherited: tuple[object, ...] = ()
        self._scheduler_fault: Exception | None = None
        self._learning: LearningScheduler | None = None
        self._predict, self._keeper = self._new_models()
        with _process_lock:
            _runtimes.add(self)

    def __repr__(self) -> str:
        model = self.model
        name = "no model" if model is None else f"{model.name}/{model.version}"
        return f"<Runtime {name} draining={self.draining} {self._batcher!r}>"

    @property
    def model(self) -> ModelHandle | None:
        """The model that answers where none is named, for information; None while there is none."""
        return None if self._is_inherited() else self._keeper.default

    def share(self, owner: Callable[[Runtime], AnyBatcher]) -> None:
        """Have another process own the model; called before `start`. `owner` makes what asks that process.

        It tells this runtime of the model by `owner_has_loaded` and its neighbours.
        """
        self._owner = owner

    @property
    def is_shared(self) -> bool:
        """Whether the model is in another process."""
        return self._owner is not None

    @property
    def given(self) -> ModelHandle | None:
        """The model that the app handed in."""
        return self._given

    def start(self) -> None:
        """Start the worker thread, which loads the model in the background; does nothing after `close`."""
        self._renew_in_child()
        with self._lock:
            if self._closed:
                return
            if self._batcher is None:
                if self.tracing is not None:
                    self.tracing.start()
                self.recent = RecentBatches()
                self._batcher = self._threaded() if self._owner is None else self._owner(self)
            self._batcher.start()

    def ensure_started(self) -> bool:
        """Start at the first request, for servers that have no start-up hook; True where that was still to do."""
        self._renew_in_child()
        if self._batcher is not None or self.draining:
            return False
        self._started_by_request = True
        self.start()
        return True

    def await_model_in_memory(self) -> None:
        """Where a request made the start, let predictions wait for a model that needs no loading to get warm."""
        batcher = self._batcher
        if self._started_by_request and self._given is not None and batcher is not None:
            batcher.wait_started(min(READY_WAIT_S, self.settings.request_timeout_ms / 1000))

    def begin_drain(self) -> None:
        """Not ready from now on; requests that are inside are still served."""
        self.draining = True

    def close(self, timeout_s: float | None = None) -> bool:
        """Answer everything that was admitted, end the worker thread and free the model; True when it ended."""
        self._renew_in_child()
        self.draining = True
        with self._lock:
            self._closed = True
            batcher = self._batcher
        try:
            if batcher is None:
                return True
            return batcher.close(self.settings.request_timeout_ms / 1000 if timeout_s is None else timeout_s)
        finally:
            if self.tracing is not None:
                self.tracing.close()

    def _threaded(self) -> ThreadedBatcher:
        settings = self.settings
        return ThreadedBatcher(
            self._run,
            max_batch_size=settings.max_batch_size,
            max_batch_latency_s=settings.max_batch_latency_ms / 1000,
            max_batch_tokens=settings.max_batch_tokens,
            policy=settings.batch_policy,
            scheduler=self._scheduler(),
            max_queue_size=settings.max_queue_size,
            default_timeout_s=settings.request_timeout_ms / 1000,
            instances=settings.model_instances,
            padded_length=padded_length,
            on_start=self._load,
            on_stop=self._free,
            listener=self,
            on_origins=None if self.tracing is None else self.on_origins,
            on_the_way=self.on_the_way,
        )

    def _refuse_if_not_serving(self, *, was_accepted: bool) -> None:
        """Raise NotReady, or Draining for requests from after the stop."""
        if self.draining and not was_accepted:
            raise Draining("the service is stopping and takes no new work")
        if not self._ready or self._is_inherited():
            raise NotReady("the model is still loading" if self.load_error is None else "the model could not be loaded")

    def check(self, name: str | None, version: str | None, *, was_accepted: bool) -> ModelHandle | None:
        """Raise what `lease` would raise at once, for a request whose body has not been read yet.

        Returns what `peek` does. was_accepted: the request came before the service was told to stop, and is served.
        """
        self._refuse_if_not_serving(was_accepted=was_accepted)
        model = self._keeper.peek(name, version)
        if model is None:
            self._keeper.check(name, version)
        return model

    def lease(
        self,
        name: str | None = None,
        version: str | None = None,
        *,
        deadline: float | None = None,
        is_gone: Callable[[], bool] | None = None,
    ) -> Lease:
        """The right to use a model; one that is only in the repository is loaded first.

        name: None for the only one, or MODEL_NAME. version: None for its default one. deadline: when to give up,
        `time.monotonic()`; REQUEST_TIMEOUT_MS from now by default. is_gone: see `ThreadedBatcher.ask`.
        Raises UnknownModel, UnknownVersion, NotReady, DeadlineExceeded, ClientGone, or Draining or WorkerDead.
        """
        # Again and again, because it may be pushed out before it is used.
        while (lease := self._keeper.lease(name, version)) is None:
            self._refuse_if_not_serving(was_accepted=True)
            self._with_room(partial(self._keeper.load_on_demand, name, version), deadline, is_gone)
        return lease

    def lease_now(self, name: str | None, version: str | None) -> Lease | None:
        """The right to use a model that is loaded already; None for any other."""
        return None if self._is_inherited() else self._keeper.lease(name, version)

    def _with_room(self, load: Callable[[], Any], deadline: float | None, is_gone: Callable[[], bool] | None) -> Any:
        """Have the worker thread load a model, as soon as so many others are not in use that there is room for it.

        load: something that is not true as long as there is no room.
        """
        began = time.monotonic()
        if deadline is None:
            deadline = began + self.settings.request_timeout_ms / 1000
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise DeadlineExceeded(time.monotonic() - began, _NOT_LOADED_IN_TIME)
            try:
                loaded = self.batcher().call(load, left_s, is_gone=is_gone)
            except DeadlineExceeded:
                continue
            if loaded:
                return loaded
            # In slices, because the worker that would make room may die, and the client may leave.
            self._keeper.wait_for_room(min(left_s, _ROOM_CHECK_S))

    def known_models(self) -> list[KnownVersion]:
        """Every version that is loaded or lies in the repository, by name, oldest version first."""
        return [] if self._is_inherited() else self._keeper.known()

    def sample(self, model: ModelHandle) -> Any | None:
        """The prediction for a made-up row, which shows what the model's predictions look like; None if not known."""
        return self._keeper.sample(model)

    def statistics(self, model: ModelHandle) -> ModelStatistics:
        """The running totals of a loaded model, which go on when it is loaded anew."""
        return self._keeper.statistics(model)

    def all_statistics(self) -> dict[Key, ModelStatistics]:
        """The running totals of every version that is, or was, loaded, by name and version."""
        return {} if self._is_inherited() else self._keeper.all_statistics()

    @property
    def default_name(self) -> str | None:
        """The model that answers where none is named; None where there are several and MODEL_NAME names none."""
        return self._keeper.default_name

    @property
    def has_repository(self) -> bool:
        """Whether there may be several models and versions."""
        return self._keeper.has_repository

    def peek(self, name: str | None = None, version: str | None = None) -> ModelHandle | None:
        """A loaded model, for information only; it may be freed at any moment."""
        return self._keeper.peek(name, version)

    def load(
        self, name: str | None = None, version: str | None = None, *, timeout_s: float | None = None
    ) -> ModelHandle:
        """Load a model beside those that serve, warm it up, and let it answer from the next batch on.

        name: None for the only one. version: None for the newest in MODEL_REPOSITORY; at MODEL_PATH whatever lies there
        now replaces what was loaded. Where it fails, the old one goes on to serve and what went wrong is raised: a
        ModelError, or UnknownModel when there is no such thing. Other models wait while one is loaded. timeout_s:
        REQUEST_TIMEOUT_MS by default; a load that has begun goes on after DeadlineExceeded.

        *Thread:* any but the worker's; it blocks until the model is loaded.
        """
        self._refuse_if_shared()
        self._refuse_if_not_serving(was_accepted=True)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        loaded: ModelHandle = self._with_room(partial(self._keeper.load, name, version), deadline, None)
        return loaded

    def unload(self, name: str, version: str | None = None) -> bool:
        """Serve a version, or a whole model, no longer until it is loaded again; False when none was served.

        Requests that use it now are still answered; then its memory is free. When it was the default version, the
        newest of the others takes its place.
        """
        self._refuse_if_shared()
        unloaded: bool = self.batcher().call(partial(self._keeper.unload, name, version))
        return unloaded

    def version_of(self, name: str | None) -> str | None:
        """The version of a model, or of the default one, that answers or will answer where none is named."""
        if name is not None:
            return self._keeper.current(name)
        model = self.model or self._given
        return self.settings.model_version if model is None else model.version

    def _refuse_if_shared(self) -> None:
        if self.is_shared:
            raise Forbidden("the one model of several processes is replaced by a reload, SIGHUP (MODEL_SHARING=one)")

    def batcher(self) -> AnyBatcher:
        """The batcher, once started."""
        batcher = self._batcher
        if batcher is None or self._is_inherited():
            raise NotReady("the service has not been started")
        return batcher

    def status(self) -> BatcherStatus | None:
        """The batcher's snapshot; None before the start."""
        batcher = self._batcher
        return None if batcher is None or self._is_inherited() else batcher.status()

    @property
    def is_dead(self) -> bool:
        """Whether the worker thread has ended by a fault, in a load or later."""
        status = self.status()
        return status is not None and status.state is WorkerState.DEAD

    def announce(self) -> Arrival:
        """Count a request that is being read and prepared, for the eager policy."""
        return self.batcher().announce()

    def _is_inherited(self) -> bool:
        """Whether what is running here is running in a parent process, and not here."""
        return forks() != self._forks

    def _renew_in_child(self) -> None:
        """Forget what the parent process has running; called first by whoever starts or closes."""
        if not self._is_inherited():
            return
        with _process_lock:
            if not self._is_inherited():
                return
            # Kept and never freed: the parent's device context must not be touched from a child.
            self._inherited += (self._batcher, self._keeper)
            self._lock = threading.Lock()  # a thread that is not there any more may have held it
            self._batcher = None
            self.load_error = None
            self._ready = False
            self.placed = None
            self._predict, self._keeper = self._new_models()
            self._forks = forks()

    def _new_models(self) -> tuple[FilledCalls, ModelKeeper]:
        settings = self.settings
        predict = FilledCalls(
            settings.batch_size_buckets or (), settings.max_batch_size, lambda: self.batcher().effective_max_batch_size
        )
        keeper = ModelKeeper(
            settings,
            self.metrics,
            predict,
            given=self._given,
            status_of=self._status_of,
            on_unused=self._sweep_soon,
            learning=self._learn,
            placed=lambda: self.placed,
        )
        return predict, keeper

    def _status_of(self, model: ModelHandle) -> Callable[[], BatcherStatus] | None:
        """What tells how much waits for a model; None where another process does."""
        return None if self.is_shared else lambda: self.batcher().status(lambda key: key.model is model)

    def _sweep_soon(self) -> None:
        with suppress(NotReady, Draining, WorkerDead):  # the end of the worker frees everything
            self.batcher().post(self._keeper.sweep)

    def _scheduler(self) -> Scheduler:
        """The scheduler of the settings. Where there is none, the worker thread says so, like all that stops a load."""
        try:
            self._scheduler_fault = None
            scheduler = make_scheduler(self.settings.scheduler)
            self._learning = scheduler if isinstance(scheduler, LearningScheduler) else None
            return scheduler
        except Exception as error:
            self._scheduler_fault = error
            return Fifo()

    def _learn(self, model: ModelHandle) -> Learn | None:
        """What learns how long batches of a model take when its callers give no parameters; None where nothing does."""
        if (scheduler := self._learning) is None:
            return None
        lane = plain_lane(model)
        return lambda rows, length, seconds: scheduler.learn(lane, rows, length, seconds)

    def learnt(self) -> list[BestSize] | None:
        """The batches that are best for the default model, by length; None where nothing is learnt. *Thread:* any."""
        scheduler, model = self._learning, self.model
        if scheduler is None or model is None:
            return None
        return scheduler.learnt(plain_lane(model)) or None

    # What is heard of a model in another process, on the thread that hears it.

    def owner_has_loaded(self, model: ModelHandle, sample: Any | None) -> None:
        """The model can answer, for the first time or anew."""
        self._keeper.adopt(model, sample)
        self._ready = True

    def owner_has_failed(self, error: ModelError) -> None:
        """There is no model, and will be none."""
        self.load_error = error
        if self.settings.exit_on_load_error:
            self.on_fatal(f"the model could not be loaded: {text_of(error)}")

    def owner_has_run(self, model: ModelHandle, info: BatchInfo, longest_wait_s: float) -> None:
        """A batch with rows of this process has run; the owner has counted it for the metrics."""
        self._keeper.statistics(model).batch(info)
        self.recent.add(model, info, [longest_wait_s], 0)

    # What the worker thread calls.

    def on_batch(
        self, info: BatchInfo, key: LaneKey, waits_s: Sequence[float], errors: Sequence[PredictionFailed]
    ) -> None:
        """A batch has run."""
        for error in errors:
            whose = f" in request {error.request_id}" if error.request_id else ""
            told = "a row of batch %d failed%s: %s"
            log_error(_log, logging.ERROR, told, info.batch_id, whose, error, error=error.__cause__)
        self.metrics.batch(key.model, info, waits_s, errors)
        self._keeper.statistics(key.model).batch(info, len(errors))
        self.recent.add(key.model, info, waits_s, len(errors))

    def on_origins(
        self, info: BatchInfo, key: LaneKey, origins: Sequence[object | None], errors: Sequence[PredictionFailed]
    ) -> None:
        """A batch has run; asked for only where it is recorded for whom."""
        if self.tracing is not None:
            self.tracing.batch(key.model, info, origins, errors)

    def on_split(self, kind: FaultKind, size: int, key: LaneKey) -> None:
        """A model call failed and is split."""
        self.metrics.split(key.model, kind)
        _log.warning("a batch of %d rows failed (%s) and is split to find the cause", size, kind)

    def on_death(self, cause: BaseException) -> None:
        """The worker has ended and everyone has been answered."""
        if self.load_error is None and not self._ready:
            self.load_error = cause
        if self.load_error is None:
            self.on_fatal(f"the inference worker ended with {type(cause).__name__}")
        elif self.settings.exit_on_load_error:
            self.on_fatal(f"the model could not be loaded: {text_of(self.load_error)}")

    def _load(self) -> None:
        try:
            if isinstance(self._scheduler_fault, NoScheduler):
                raise ModelError(f"SCHEDULER: {self._scheduler_fault}") from self._scheduler_fault
            if self._scheduler_fault is not None:
                raise self._scheduler_fault
            self._keeper.start()
        except Exception as error:
            self.load_error = error
            log_load_failure("the model", error)
            raise StartFailed from error
        self._ready = True

    def _free(self) -> None:
        self._keeper.close()
        self.metrics.ended()

    def _run(self, rows: list[Any], key: LaneKey) -> Any:
        parameters = {name: value for name, _, value in key.parameters}
        placed = self.placed
        if placed is None:
            return self._predict(key.model, rows, parameters)
        placed.seat.calls()
        try:
            return self._predict(key.model, rows, parameters)
        finally:
            placed.seat.called()
