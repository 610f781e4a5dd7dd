"""Gauges of the present state: which models are loaded, and how much waits for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, Protocol

from prometheus_client import CollectorRegistry, Gauge

from service.batching.status import BatcherStatus
from service.metrics.families import counts_are_shared, family

# How old the state of another process may be in an answer, seconds; it costs some microseconds to write it down.
SAMPLE_S = 1.0

INFO = "inference_model_info"

StatusOf = Callable[[], BatcherStatus]
Version = tuple[str, str]
Identity = tuple[str, str, str, str]


class ModelIdentity(Protocol):
    """The part of a model handle that names it."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def fmt(self) -> str: ...
    @property
    def device(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """One gauge. `mode`, `combine`: how the values of several processes, and of several apps in one, become one.

    `absent`: what to write for a model that is not loaded, so that it changes nothing about the others.
    """

    name: str
    text: str
    value: Callable[[BatcherStatus], float]
    mode: Literal["livesum", "livemax", "livemin"]
    combine: Callable[[Iterable[float]], float]
    absent: float = 0.0


KINDS = (
    Kind("inference_queue_depth", "Rows admitted and not yet in a batch", lambda now: now.queued, "livesum", sum),
    Kind(
        "inference_oldest_wait_seconds",
        "Time that the oldest waiting row has waited",
        lambda now: now.oldest_wait_s,
        "livemax",
        max,
    ),
    # The greatest and not the sum: the processes work their queues off side by side.
    Kind(
        "inference_backlog_seconds",
        "Time to serve the rows that wait now, at the measured pace",
        lambda now: now.backlog_s,
        "livemax",
        max,
    ),
    Kind(
        "inference_effective_max_batch_size",
        "Rows per batch that memory allows now",
        lambda now: now.effective_max_batch_size,
        "livemin",
        min,
        absent=float("inf"),
    ),
    # Of the queue that a model's rows wait in: several models of one process have the same threads.
    Kind("inference_instances", "Worker threads that run batches", lambda now: now.instances, "livesum", sum),
    Kind(
        "inference_busy_instances",
        "Worker threads with a batch in the model now",
        lambda now: now.busy_instances,
        "livesum",
        sum,
    ),
)


class PresentState(Protocol):
    """What the gauges of an app are told."""

    def show(self, model: ModelIdentity, status: StatusOf) -> None:
        """A model is served from now on; `status` tells how much waits for it."""

    def hide(self, model: ModelIdentity, replaced_by: ModelIdentity | None) -> None:
        """A model is served no longer, or `replaced_by` the same version, which is shown already."""

    def end(self) -> None:
        """Nothing is served any more, and nothing needs to be kept up to date."""

    def refresh(self) -> None:
        """The gauges are about to be read."""


def present_state(registry: CollectorRegistry) -> PresentState:
    """The gauges of an app: in its registry, or in those of the process where counts are shared."""
    return _AppOfSampled(_sampled()) if counts_are_shared() else AskedState(registry)


class AskedState:
    """Gauges that ask whenever they are read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = [(kind, _gauge(kind, registry)) for kind in KINDS]
        self._info = _info(registry)

    def show(self, model: ModelIdentity, status: StatusOf) -> None:
        """Ask `status` from now on."""
        self._info.labels(*_identity(model)).set(1)
        for kind, gauge in self._gauges:
            gauge.labels(model.name, model.version).set_function(partial(_ask, kind, status))

    def hide(self, model: ModelIdentity, replaced_by: ModelIdentity | None) -> None:
        """Take the series away."""
        if replaced_by is None:
            for _, gauge in self._gauges:
                gauge.remove(model.name, model.version)
        if replaced_by is None or _identity(replaced_by) != _identity(model):
            self._info.remove(*_identity(model))

    def end(self) -> None:
        """Show what was true at the end."""

    def refresh(self) -> None:
        """Nothing to do."""


class SampledState:
    """The gauges of a process whose counts are shared: files cannot ask, so that a thread writes down what is true.

    It runs as long as a model is loaded, once in `SAMPLE_S`. A series cannot be taken out of a file: that of a model
    that has left gets the value which is `absent` among others.
    """

    def __init__(self) -> None:
        self._gauges = [(kind, _gauge(kind, None)) for kind in KINDS]
        self._info = _info(None)
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Nothing is loaded; in a child process whatever its parent has."""
        # Guards the two below, and is held while values are written: an older one must not be written after a newer.
        self._lock = threading.Lock()
        self._shown: dict[Identity, dict[object, StatusOf]] = {}
        self._all_left: threading.Event | None = None

    def show(self, app: object, model: ModelIdentity, status: StatusOf) -> None:
        """Ask `status` in time, on behalf of `app`."""
        with self._lock:
            self._shown.setdefault(_identity(model), {})[app] = status
            self._write()
            if self._all_left is None:
                self._all_left = threading.Event()
                threading.Thread(target=self._run, args=(self._all_left,), name="jitney-gauges", daemon=True).start()

    def hide(self, app: object, model: ModelIdentity) -> None:
        """Ask no longer; the thread ends with the last model."""
        with self._lock:
            self._forget(app, _identity(model))

    def end(self, app: object) -> None:
        """Hide all models of `app`."""
        with self._lock:
            for identity in [identity for identity, apps in self._shown.items() if app in apps]:
                self._forget(app, identity)

    def refresh(self) -> None:
        """Write down what is true now."""
        with self._lock:
            self._write()

    def _run(self, all_left: threading.Event) -> None:
        while not all_left.wait(SAMPLE_S):
            self.refresh()

    def _forget(self, app: object, identity: Identity) -> None:
        apps = self._shown.get(identity, {})
        apps.pop(app, None)
        if not apps:
            self._shown.pop(identity, None)
            self._write_absent(identity)
        if not self._shown and self._all_left is not None:
            self._all_left.set()
            self._all_left = None

    def _write(self) -> None:
        by_version: dict[Version, list[BatcherStatus]] = {}
        for identity, apps in self._shown.items():
            self._info.labels(*identity).set(1)
            by_version.setdefault(identity[:2], []).extend(status() for status in apps.values())
        for version, states in by_version.items():
            for kind, gauge in self._gauges:
                gauge.labels(*version).set(kind.combine(kind.value(state) for state in states))

    def _write_absent(self, identity: Identity) -> None:
        self._info.labels(*identity).set(0)
        version = identity[:2]
        if all(shown[:2] != version for shown in self._shown):
            for kind, gauge in self._gauges:
                gauge.labels(*version).set(kind.absent)


class _AppOfSampled:
    """One app among those whose gauges the process has in common."""

    def __init__(self, state: SampledState) -> None:
        self._state = state

    def show(self, model: ModelIdentity, status: StatusOf) -> None:
        self._state.show(self, model, status)

    def hide(self, model: ModelIdentity, replaced_by: ModelIdentity | None) -> None:
        if replaced_by is None or _identity(replaced_by) != _identity(model):
            self._state.hide(self, model)

    def end(self) -> None:
        self._state.end(self)

    def refresh(self) -> None:
        self._state.refresh()


def _ask(kind: Kind, status: StatusOf) -> float:
    return kind.value(status())


@cache
def _sampled() -> SampledState:
    return SampledState()


def _gauge(kind: Kind, registry: Any) -> Gauge:
    return family(Gauge, kind.name, kind.text, ("model", "version"), registry, multiprocess_mode=kind.mode)


def _info(registry: Any) -> Gauge:
    labels = ("name", "version", "format", "device")
    return family(Gauge, INFO, "The loaded model", labels, registry, multiprocess_mode="livemax")


def _identity(model: ModelIdentity) -> Identity:
    return model.name, model.version, model.fmt, model.device
