"""The running heart of an app: it starts, watches and stops the batcher with its model."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.signature import ImageInput, TextInput
from service.batching.admission import Arrival
from service.batching.batcher import BatcherStatus, ThreadedBatcher
from service.batching.faults import FaultKind, log_error, text_of
from service.batching.schedulers import Fifo, NoScheduler, Scheduler, make_scheduler
from service.batching.tickets import BatchInfo
from service.batching.worker import StartFailed
from service.errors import Draining, NotReady, PredictionFailed
from service.inputs import image
from service.metrics.batches import BatchMetrics
from service.models.filling import FilledCalls
from service.models.loading import load_configured_model
from service.models.warmup import warm_up
from service.settings import Settings

_log = logging.getLogger("jitney")

# How long the first request of a server without start-up hooks waits for a model that is in memory already.
READY_WAIT_S = 5.0

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
    """One model behind one batcher.

    `start` and `close` may be called more than once and from any thread. `on_fatal(reason)` is called on the worker
    thread when this process cannot serve any more; whoever runs the process decides what follows.

    In a child process it has not been started, whatever its parent did with it: threads do not survive a fork. `start`
    or the first request starts it anew there; a model that comes from a path is loaded again.
    """

    def __init__(self, settings: Settings, metrics: BatchMetrics, model_handle: ModelHandle | None = None) -> None:
        self.settings = settings
        self.metrics = metrics
        self.model: ModelHandle | None = None
        self.load_error: BaseException | None = None
        self.draining = False
        self.on_fatal: Callable[[str], None] = lambda _reason: None
        self._given = model_handle
        self._lock = threading.Lock()  # guards _batcher and _closed
        self._batcher: ThreadedBatcher | None = None
        self._closed = False
        self._started_by_request = False
        self._pid = os.getpid()
        self._inherited: tuple[object, ...] = ()
        self._scheduler_fault: Exception | None = None
        self._predict = self._filled_calls()
        with _process_lock:
            _runtimes.add(self)

    def __repr__(self) -> str:
        model = self.model
        name = "no model" if model is None else f"{model.name}/{model.version}"
        return f"<Runtime {name} draining={self.draining} {self._batcher!r}>"

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
        """The model that answers now; raises NotReady or Draining, the latter only for requests from after the stop."""
        if self.draining and not was_accepted:
            raise Draining("the service is stopping and takes no new work")
        if self.model is None or self._is_inherited():
            raise NotReady("the model is still loading" if self.load_error is None else "the model could not be loaded")
        return self.model

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
            self._inherited += (self._batcher, self.model)
            self._lock = threading.Lock()  # a thread that is not there any more may have held it
            self._batcher = None
            self.model = None
            self.load_error = None
            self._predict = self._filled_calls()
            self._pid = os.getpid()

    def _filled_calls(self) -> FilledCalls:
        settings = self.settings
        return FilledCalls(
            settings.batch_size_buckets or (), settings.max_batch_size, lambda: self.batcher().effective_max_batch_size
        )

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

    def on_split(self, kind: FaultKind, size: int, key: LaneKey) -> None:
        """A model call failed and is split."""
        self.metrics.split(key.model, kind)
        _log.warning("a batch of %d rows failed (%s) and is split to find the cause", size, kind)

    def on_death(self, cause: BaseException) -> None:
        """The worker has ended and everyone has been answered."""
        if self.load_error is None and self.model is None:
            self.load_error = cause
        if self.load_error is None:
            self.on_fatal(f"the inference worker ended with {type(cause).__name__}")
        elif self.settings.exit_on_load_error:
            self.on_fatal(f"the model could not be loaded: {text_of(self.load_error)}")

    def _load(self) -> None:
        started_at = time.monotonic()
        model: ModelHandle | None = None
        try:
            if isinstance(self._scheduler_fault, NoScheduler):
                raise ModelError(f"SCHEDULER: {self._scheduler_fault}") from self._scheduler_fault
            if self._scheduler_fault is not None:
                raise self._scheduler_fault
            model = self._given or load_configured_model(self.settings)
            if isinstance(model.input, ImageInput):
                image.require()
            if self.settings.warmup:
                warm_up(model, self.settings.max_batch_size, self._predict, self.settings.batch_size_buckets or ())
        except Exception as error:
            self.load_error = error
            # A ModelError is written for people; anything else needs its traceback to be understood.
            shown = None if issubclass(type(error), ModelError) else error
            log_error(_log, logging.CRITICAL, "the model could not be loaded: %s", text_of(error), error=shown)
            if model is not None and model is not self._given:
                model.close()
            raise StartFailed from error
        self.metrics.loaded(model, self.batcher().status)
        for warning in model.warnings:
            _log.warning("%s", warning)
        took_s = time.monotonic() - started_at
        _log.info("model %s version %s (%s) is ready after %.1f s", model.name, model.version, model.fmt, took_s)
        self.model = model

    def _free(self) -> None:
        """Free the model; one that was handed in belongs to whoever made it."""
        if self.model is not None and self.model is not self._given:
            self.model.close()

    def _run(self, rows: list[Any], key: LaneKey) -> Any:
        return self._predict(key.model, rows, {name: value for name, _, value in key.parameters})


def _padded_length(key: LaneKey, longest: int) -> int:
    spec = key.model.input
    return spec.padded_length(longest) if isinstance(spec, TextInput) else longest
