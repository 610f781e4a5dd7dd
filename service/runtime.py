"""The running heart of an app: it starts, watches and stops the batcher with its model."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.signature import TextInput
from service.batching.admission import Arrival
from service.batching.batcher import BatcherStatus, ThreadedBatcher
from service.batching.faults import FaultKind, log_error, text_of
from service.batching.schedulers import Fifo, NoScheduler, Scheduler, make_scheduler
from service.batching.tickets import BatchInfo
from service.batching.worker import StartFailed
from service.errors import DeadlineExceeded, Draining, JitneyError, NotReady, PredictionFailed, WorkerDead
from service.metrics.batches import BatchMetrics
from service.models.filling import FilledCalls
from service.models.keeper import KnownVersion, ModelKeeper, log_load_failure
from service.models.loaded import Lease
from service.settings import Settings

_log = logging.getLogger("jitney")

# How long the first request of a server without start-up hooks waits for a model that is in memory already.
READY_WAIT_S = 5.0

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


@dataclass(frozen=True, slots=True)
class LaneKey:
    """Rows with equal keys may share a batch: same model, same parameters, same shape.

    A parameter is (name, type, value): 1, 1.0 and true are equal to Python, but not to every model.
    """

    model: ModelHandle
    parameters: tuple[tuple[str, str, Any], ...]
    shape: tuple[Any, ...]


class Runtime:
    """The models of a service behind one batcher.

    `start` and `close` may be called more than once and from any thread. `on_fatal(reason)` is called on the worker
    thread when this process cannot serve any more; whoever runs the process decides what follows.

    In a child process it has not been started, whatever its parent did with it: threads do not survive a fork. `start`
    or the first request starts it anew there; a model that comes from a path is loaded again.
    """

    def __init__(self, settings: Settings, metrics: BatchMetrics, model_handle: ModelHandle | None = None) -> None:
        self.settings = settings
        self.metrics = metrics
        self.load_error: BaseException | None = None
        self.draining = False
        self.on_fatal: Callable[[str], None] = lambda _reason: None
        self._given = model_handle
        self._lock = threading.Lock()  # guards _batcher and _closed
        self._batcher: ThreadedBatcher | None = None
        self._closed = False
        self._ready = False  # all that is served from the start is loaded; the worker sets it
        self._started_by_request = False
        self._pid = os.getpid()
        self._inherited: tuple[object, ...] = ()
        self._scheduler_fault: Exception | None = None
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

    def start(self) -> None:
        """Start the worker thread, which loads the model in the background; does nothing after `close`."""
        self._renew_in_child()
        settings = self.settings
        with self._lock:
            if self._closed:
                return
            if self._batcher is None:
                self._batcher = ThreadedBatcher(
                    self._run,
                    max_batch_size=settings.max_batch_size,
                    max_batch_latency_s=settings.max_batch_latency_ms / 1000,
                    max_batch_tokens=settings.max_batch_tokens,
                    policy=settings.batch_policy,
                    scheduler=self._scheduler(),
                    max_queue_size=settings.max_queue_size,
                    default_timeout_s=settings.request_timeout_ms / 1000,
                    padded_length=_padded_length,
                    on_start=self._load,
                    on_stop=self._free,
                    listener=self,
                )
            self._batcher.start()

    def ensure_started(self) -> None:
        """Start at the first request, for servers that have no start-up hook."""
        self._renew_in_child()
        if self._batcher is None and not self.draining:
            self._started_by_request = True
            self.start()

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
        if batcher is None:
            return True
        return batcher.close(self.settings.request_timeout_ms / 1000 if timeout_s is None else timeout_s)

    def serving(self, *, was_accepted: bool = False) -> ModelHandle:
        """The model that answers where none is named; raises NotReady, or Draining for requests from after the stop."""
        if self.draining and not was_accepted:
            raise Draining("the service is stopping and takes no new work")
        model = self.model
        if model is None or not self._ready:
            raise NotReady("the model is still loading" if self.load_error is None else "the model could not be loaded")
        return model

    def lease(self, name: str | None = None, version: str | None = None, *, was_accepted: bool = False) -> Lease:
        """The right to use a model; one that is only in the repository is loaded first, within REQUEST_TIMEOUT_MS.

        name: None for the only one, or MODEL_NAME. version: None for its default one. was_accepted: the request came
        before the service was told to stop. Raises UnknownModel, NotReady, Draining, DeadlineExceeded or WorkerDead.
        """
        self.serving(was_accepted=was_accepted)
        return self._keeper.lease(name, version) or self._lease_on_demand(name, version)

    def _lease_on_demand(self, name: str | None, version: str | None) -> Lease:
        began = time.monotonic()
        limit_s = self.settings.request_timeout_ms / 1000
        while True:
            key = self._keeper.find(name, version)
            left_s = began + limit_s - time.monotonic()
            if left_s <= 0:
                raise DeadlineExceeded(limit_s, _NOT_LOADED_IN_TIME)
            is_loaded = self._on_worker(
                partial(self._keeper.load_for_request, key, make_current=version is None), left_s
            )
            lease = self._keeper.lease(*key)
            if lease is not None:
                return lease
            if not is_loaded:
                self._keeper.wait_for_room(left_s)

    def _on_worker(self, run: Callable[[], Any], timeout_s: float) -> Any:
        """Have a model loaded for a request, which is not to learn why that failed."""
        try:
            return self.batcher().call(run, timeout_s)
        except DeadlineExceeded as error:
            raise DeadlineExceeded(error.waited_s, _NOT_LOADED_IN_TIME) from error
        except JitneyError:
            raise
        except Exception as error:
            raise NotReady("this version of the model could not be loaded; the service's log has the reason") from error

    def offers(self, name: str, version: str) -> bool:
        """Whether a request may ask for this version of a model."""
        return self._keeper.has(name, version)

    def known_models(self) -> list[KnownVersion]:
        """Every version that is loaded or lies in the repository, by name, oldest version first."""
        return self._keeper.known()

    def load(
        self, name: str | None = None, version: str | None = None, *, timeout_s: float | None = None
    ) -> ModelHandle:
        """Load a model beside those that serve, warm it up, and let it answer from the next batch on.

        name: None for the only one. version: None for the newest in MODEL_REPOSITORY; at MODEL_PATH whatever lies there
        now replaces what was loaded. Where it fails, the old one goes on to serve and what went wrong is raised, mostly
        a ModelError. Other models wait while one is loaded. timeout_s: REQUEST_TIMEOUT_MS by default; the load itself
        goes on after DeadlineExceeded.
        """
        loaded: ModelHandle = self.batcher().call(partial(self._keeper.load, name, version), timeout_s)
        return loaded

    def unload(self, name: str, version: str | None = None) -> bool:
        """Serve a version, or a whole model, no longer until it is loaded again; False when there is none.

        Requests that use it now are still answered; then its memory is free.
        """
        unloaded: bool = self.batcher().call(partial(self._keeper.unload, name, version))
        return unloaded

    @property
    def model_version(self) -> str | None:
        """The version that is or will be served; None while it is not known."""
        model = self.model or self._given
        return self.settings.model_version if model is None else model.version

    def batcher(self) -> ThreadedBatcher:
        """The batcher, once started."""
        batcher = self._batcher
        if batcher is None or self._is_inherited():
            raise NotReady("the service has not been started")
        return batcher

    def status(self) -> BatcherStatus | None:
        """The batcher's snapshot; None before the start."""
        batcher = self._batcher
        return None if batcher is None or self._is_inherited() else batcher.status()

    def announce(self) -> Arrival:
        """Count a request that is being read and prepared, for the eager policy."""
        return self.batcher().announce()

    def _is_inherited(self) -> bool:
        """Whether what is running here is running in a parent process, and not here."""
        return os.getpid() != self._pid

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
            self._predict, self._keeper = self._new_models()
            self._pid = os.getpid()

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
            status_of=lambda model: lambda: self.batcher().status(lambda key: key.model is model),
            on_unused=self._sweep_soon,
        )
        return predict, keeper

    def _sweep_soon(self) -> None:
        with suppress(NotReady, Draining, WorkerDead):  # the end of the worker frees everything
            self.batcher().post(self._keeper.sweep)

    def _scheduler(self) -> Scheduler:
        """The scheduler of the settings. Where there is none, the worker thread says so, like all that stops a load."""
        try:
            self._scheduler_fault = None
            return make_scheduler(self.settings.scheduler)
        except Exception as error:
            self._scheduler_fault = error
            return Fifo()

    # What the worker thread calls.

    def on_batch(
        self, info: BatchInfo, key: LaneKey, waits_s: Sequence[float], errors: Sequence[PredictionFailed]
    ) -> None:
        """A batch has run."""
        for error in errors:
            log_error(_log, logging.ERROR, "a row of batch %d failed: %s", info.batch_id, error, error=error.__cause__)
        self.metrics.batch(key.model, info, waits_s, errors)
        self._keeper.used(key.model)

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

    def _run(self, rows: list[Any], key: LaneKey) -> Any:
        return self._predict(key.model, rows, {name: value for name, _, value in key.parameters})


def _padded_length(key: LaneKey, longest: int) -> int:
    spec = key.model.input
    return spec.padded_length(longest) if isinstance(spec, TextInput) else longest
