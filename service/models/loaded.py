"""The models that are in memory, who uses them now, and which version answers when none is named."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from loaders.cache import ModelCache
from loaders.handle import ModelHandle
from service.batching.faults import log_error
from service.models.repository import newest

_log = logging.getLogger("jitney")


class Lease:
    """The right to use a model: it is not freed before every lease on it has ended. A context manager."""

    __slots__ = ("_models", "model")

    def __init__(self, models: LoadedModels, model: ModelHandle) -> None:
        self._models = models
        self.model = model

    def __enter__(self) -> ModelHandle:
        return self.model

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._models.end_lease(self.model)


class LoadedModels:
    """Loaded handles by name and version, at most `capacity` of them, and those that left while they were in use.

    The worker thread adds, removes and frees them; request threads take leases. `on_unused()` is called on a request
    thread when the last lease on a model that has left has ended: whoever gives it has `sweep` called on the worker
    thread. There, `on_left(handle)` is called for a handle that answers no longer, and `free(handle)` when nobody uses
    it any more.

    One lock guards everything; what is called is called without it.
    """

    def __init__(
        self,
        capacity: int,
        *,
        on_left: Callable[[ModelHandle], None],
        free: Callable[[ModelHandle], None],
        on_unused: Callable[[], None],
    ) -> None:
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._on_left = on_left
        self._free = free
        self._on_unused = on_unused
        self._retired: list[ModelHandle] = []
        self._cache = ModelCache(capacity, self._retired.append)
        self._capacity = capacity
        self._default_name: str | None = None
        self._current: dict[str, str] = {}
        self._leases: dict[ModelHandle, int] = {}

    def __repr__(self) -> str:
        return f"<LoadedModels {self._cache!r} current={self._current} retired={len(self._retired)}>"

    @property
    def default_name(self) -> str | None:
        """The model that answers when none is named."""
        return self._default_name

    @default_name.setter
    def default_name(self, name: str | None) -> None:
        with self._lock:
            self._default_name = name

    def all(self) -> list[ModelHandle]:
        """Every loaded handle, least recently used first."""
        with self._lock:
            return self._cache.handles()

    def current(self, name: str) -> str | None:
        """The version of `name` that answers when none is named, in memory or not; None when none was chosen yet."""
        return self._current.get(name)

    def peek(self, name: str, version: str) -> ModelHandle | None:
        """The loaded handle, for information; it may be freed at any moment."""
        with self._lock:
            return self._cache.peek((name, version))

    def lease(self, name: str | None, version: str | None) -> Lease | None:
        """The right to use a loaded model; None when it is not there.

        name: None for the default one. version: None for the default one of that name. Both are looked up in the same
        step as the model, so that a swap never leaves a request between two versions.
        """
        with self._lock:
            name = name or self._default_name or ""
            model = self._cache.get((name, version or self._current.get(name, "")))
            if model is None:
                return None
            self._leases[model] = self._leases.get(model, 0) + 1
            return Lease(self, model)

    def end_lease(self, model: ModelHandle) -> None:
        """A request is done with a model."""
        with self._lock:
            left = self._leases.pop(model) - 1
            unused = left == 0
            if not unused:
                self._leases[model] = left
            is_last = unused and model in self._retired
        if is_last:
            self._on_unused()

    @property
    def has_room(self) -> bool:
        """Whether one more may be loaded beside those in memory: no more than one above the capacity at any time."""
        with self._lock:
            return self._in_memory() <= self._capacity

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait until models that are still in use have been freed; False after `timeout_s` seconds."""
        with self._freed:
            return self._freed.wait_for(lambda: self._in_memory() <= self._capacity, timeout_s)

    def add(self, model: ModelHandle, *, make_current: bool, make_default: bool = False) -> None:
        """Serve a model that is loaded and warm; what it replaces or pushes out leaves. *Thread:* worker."""
        with self._lock:
            before = len(self._retired)
            self._cache.put(model)
            if make_current:
                self._current[model.name] = model.version
            if make_default:
                self._default_name = model.name
            left = self._retired[before:]
        self._let_go(left)

    def make_current(self, name: str, version: str) -> None:
        """Let a version answer where none is named."""
        with self._lock:
            self._current[name] = version

    def remove(self, name: str, version: str) -> bool:
        """Serve this version no longer; False when it is not loaded. *Thread:* worker."""
        with self._lock:
            before = len(self._retired)
            removed = self._cache.remove((name, version))
            if self._current.get(name) == version:
                left = newest(model.version for model in self._cache.handles() if model.name == name)
                if left is None:
                    del self._current[name]
                else:
                    self._current[name] = left
            gone = self._retired[before:]
        self._let_go(gone)
        return removed

    def sweep(self) -> None:
        """Free what has left and is not in use any more. *Thread:* worker."""
        with self._lock:
            unused = [model for model in self._retired if model not in self._leases]
        self._free_all(unused)

    def clear(self) -> None:
        """Free everything: nobody waits for an answer now. *Thread:* worker."""
        with self._lock:
            self._cache.clear()
            everything = list(self._retired)
        self._free_all(everything)

    def _in_memory(self) -> int:
        return len(self._cache) + len(self._retired)

    def _let_go(self, left: list[ModelHandle]) -> None:
        while left:  # and not a loop over it: a variable of this frame would keep the last of them alive
            self._on_left(left.pop())
        self.sweep()

    def _free_all(self, models: list[ModelHandle]) -> None:
        if not models:
            return
        while models:
            self._free_one(models.pop())
        with self._freed:
            self._freed.notify_all()

    def _free_one(self, model: ModelHandle) -> None:
        try:
            self._free(model)
        except BaseException as error:  # the code of one model must not end the thread that serves all
            log_error(_log, logging.ERROR, "model %s could not be freed cleanly", model.name, error=error)
        with self._lock:
            self._retired.remove(model)
