"""The running heart of an app: it starts, watches and stops the batcher with its model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from loaders.cache import Key
from loaders.handle import ModelHandle
from service.batching.admission import Arrival, WorkerState
from service.batching.any_batcher import AnyBatcher
from service.batching.cost_table import BestSize
from service.batching.forks import forks
from service.batching.policy import nobody
from service.batching.status import BatcherStatus
from service.errors import Draining, Forbidden, NotReady
from service.metrics.batches import BatchMetrics
from service.models.any_models import AnyModels
from service.models.keeper import KnownVersion, ModelKeeper
from service.models.loaded import Lease
from service.models.own import OwnModels
from service.models.placing import PlacedModels
from service.models.room import load_with_room
from service.recent import RecentBatches
from service.runtimes import process_lock, remember
from service.settings import Settings
from service.statistics import ModelStatistics

if TYPE_CHECKING:
    from service.tracing.tracing import Tracing

# How long the first request of a server without start-up hooks waits for a model that is in memory already.
READY_WAIT_S = 5.0


class ThreadPlacement(Protocol):
    """Where the threads of this process run. *Thread:* any."""

    @property
    def on_one_core(self) -> bool:
        """Whether those that serve HTTP share a core."""

    def report(self) -> dict[str, Any]:
        """That and why, of plain JSON types."""


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
        self.draining = False
        self.on_fatal: Callable[[str], None] = lambda _reason: None
        self.count_unseen: Callable[[str, int, float], None] = lambda _method, _status, _seconds: None
        self.on_the_way: Callable[[], int] = nobody
        self.serves_alone = False
        self.placed: PlacedModels | None = None
        self.thread_placement: ThreadPlacement | None = None
        self._given = model_handle
        self._lock = threading.Lock()  # guards _batcher and _closed
        self._batcher: AnyBatcher | None = None
        self._closed = False
        self._started_by_request = False
        self._forks = forks()
        self._inherited: tuple[object, ...] = ()
        self._new_models: Callable[[Runtime], AnyModels] = Runtime._own_models
        self._models: AnyModels = self._new_models(self)
        remember(self)

    def __repr__(self) -> str:
        model = self.model
        name = "no model" if model is None else f"{model.name}/{model.version}"
        return f"<Runtime {name} draining={self.draining} {self._batcher!r}>"

    @property
    def model(self) -> ModelHandle | None:
        """The model that answers where none is named, for information; None while there is none."""
        return None if self._is_inherited() else self._keeper.default

    def share(self, models: Callable[[Runtime], AnyModels]) -> None:
        """Have another process own the model; called before `start`. `models` makes what stands for it here."""
        self._new_models = models
        self._models = models(self)

    @property
    def is_shared(self) -> bool:
        """Whether the model is in another process."""
        return self._models.is_shared

    @property
    def load_error(self) -> BaseException | None:
        """Why there is no model, and will be none."""
        return self._models.load_error

    @property
    def recent(self) -> RecentBatches:
        """What ran last, since the start."""
        return self._models.recent

    @property
    def _keeper(self) -> ModelKeeper:
        return self._models.keeper

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
                self._batcher = self._models.new_batcher(self.on_the_way)
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

    def _refuse_if_not_serving(self, *, was_accepted: bool) -> None:
        """Raise NotReady, or Draining for requests from after the stop."""
        if self.draining and not was_accepted:
            raise Draining("the service is stopping and takes no new work")
        if not self._models.is_ready or self._is_inherited():
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
        if deadline is None:
            deadline = time.monotonic() + self.settings.request_timeout_ms / 1000
        return load_with_room(load, self._keeper, self.batcher, deadline=deadline, is_gone=is_gone)

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

    def learnt(self) -> list[BestSize] | None:
        """The batches that are best for the default model, by length; None where nothing is learnt. *Thread:* any."""
        return None if self._is_inherited() else self._models.learnt()

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
        with process_lock():
            if not self._is_inherited():
                return
            # Kept and never freed: the parent's device context must not be touched from a child.
            self._inherited += (self._batcher, self._models)
            self._lock = threading.Lock()  # a thread that is not there any more may have held it
            self._batcher = None
            self.placed = self.thread_placement = None
            self._models = self._new_models(self)
            self._forks = forks()

    def _own_models(self) -> OwnModels:
        return OwnModels(
            self.settings,
            self.metrics,
            given=self._given,
            tracing=self.tracing,
            batcher=self.batcher,
            placed=lambda: self.placed,
            on_fatal=lambda reason: self.on_fatal(reason),
        )
