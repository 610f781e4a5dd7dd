"""Repositories of models that answer with their own name and version, and runtimes that serve them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from loaders.handle import ModelHandle
from loaders.registry import _registered, register_loader
from loaders.signature import TabularInput
from service.lane_key import LaneKey
from service.metrics.batches import BatchMetrics
from service.runtime import Runtime
from service.settings import Settings
from support.models import GUARD_S

AnyLoader = TypeVar("AnyLoader", bound=Any)


@contextmanager
def registered(loader: AnyLoader) -> Iterator[AnyLoader]:
    """Have a loader known by its `fmt`."""
    register_loader(loader.fmt, loader)
    try:
        yield loader
    finally:
        _registered.pop(loader.fmt, None)


def put(root: Path, *versions: str, fmt: str = "scripted") -> None:
    """Lay bundles down. versions: as in "a/1"."""
    for version in versions:
        directory = root / version
        directory.mkdir(parents=True)
        (directory / "weights.bin").write_bytes(b"weights")
        (directory / "jitney.toml").write_text(f'[model]\nformat = "{fmt}"\nfile = "weights.bin"\n')


@contextmanager
def served_from(root: Path, fmt: str, **defaults: Any) -> Iterator[Callable[..., Runtime]]:
    """Makes started runtimes over a repository of the versions that are given, and closes them.

    A runtime's settings may be given behind its versions; defaults: those where they are not.
    """
    made: list[Runtime] = []

    def serve(*versions: str, **settings: Any) -> Runtime:
        put(root, *versions, fmt=fmt)
        values = {"max_batch_latency_ms": 0, "model_repository": str(root), **defaults, **settings}
        made.append(started(Runtime(Settings(**values), BatchMetrics(CollectorRegistry()))))
        return made[-1]

    yield serve
    for runtime in made:
        assert runtime.close(GUARD_S)


def started(runtime: Runtime) -> Runtime:
    """The same one, whose load has ended."""
    runtime.start()
    assert runtime.batcher().wait_started(GUARD_S)
    return runtime


def ask(runtime: Runtime, name: str | None = None, version: str | None = None) -> str:
    with runtime.lease(name, version) as model:
        [answer] = runtime.batcher().submit([0], GUARD_S, key=LaneKey(model, (), ()))
        assert answer == f"{model.name}/{model.version}"
        return str(answer)


def settled(runtime: Runtime) -> None:
    """Wait for what was posted to the worker."""
    runtime.batcher().call(lambda: None)


class Scripted:
    """A loader whose models answer with their own name and version, and which remembers what it did, and where.

    `broken`: names and versions that cannot be loaded. `gate`: what a load of such a version waits for.
    """

    fmt = "scripted"

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.freed: list[str] = []
        self.threads: set[str] = set()
        self.broken: set[str] = set()
        self.gates: dict[str, threading.Event] = {}
        self.most_in_memory = 0
        self.failure: type[BaseException] = RuntimeError

    def load(self, path: Path, *, name: str, version: str, metadata: Any = None) -> ModelHandle:
        what = f"{name}/{version}"
        self.threads.add(threading.current_thread().name)
        self.loads.append(what)
        if what in self.gates:
            assert self.gates[what].wait(GUARD_S)
        if what in self.broken:
            raise self.failure(f"bad weights in {path}")
        self.most_in_memory = max(self.most_in_memory, len(self.loads) - len(self.freed) - len(self.broken))
        return ModelHandle(
            name,
            version,
            "scripted",
            lambda rows: [what] * len(rows),
            input=TabularInput(width=1),
            release=lambda: self._free(what),
        )

    def _free(self, what: str) -> None:
        self.threads.add(threading.current_thread().name)
        self.freed.append(what)
