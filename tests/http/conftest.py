"""Apps around small models, each with a runtime that is closed when its test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from named import Named
from served import GUARD_S, Served, as_handle, sums

from loaders.handle import ModelHandle
from loaders.registry import _registered, register_loader
from service import Settings, create_app


@pytest.fixture
def served() -> Iterator[Callable[..., Served]]:
    """Serve a model with some settings; unless `start` is False it takes rows when this returns."""
    open_now: list[Served] = []

    def make(
        model: ModelHandle | Callable[..., Any] | None = sums,
        *,
        start: bool = True,
        ready: bool = True,
        **settings: Any,
    ) -> Served:
        values = {"max_batch_latency_ms": 0, "warmup": False, **settings}
        handle = None if model is None else as_handle(model)
        server = Served(create_app(Settings(**values), model_handle=handle))
        open_now.append(server)
        if start:
            server.runtime.start()
            if ready:
                assert server.runtime.batcher().wait_started(GUARD_S)
        return server

    yield make
    for server in open_now:
        server.close()


@pytest.fixture
def loader() -> Iterator[Named]:
    register_loader("named", loader := Named())
    yield loader
    _registered.pop("named", None)


@pytest.fixture
def repository(tmp_path: Path, loader: Named) -> Iterator[Callable[..., Served]]:
    """Serve these versions."""
    open_now: list[Served] = []

    def serve(*versions: str, **settings: Any) -> Served:
        for version in versions:
            directory = tmp_path / version
            directory.mkdir(parents=True)
            (directory / "weights.bin").touch()
            (directory / "jitney.toml").write_text('[model]\nformat = "named"\nfile = "weights.bin"\n')
        values = {"max_batch_latency_ms": 0, "warmup": False, "model_repository": str(tmp_path), **settings}
        server = Served(create_app(Settings(**values)))
        open_now.append(server)
        server.runtime.start()
        assert server.runtime.batcher().wait_started(GUARD_S)
        return server

    yield serve
    for server in open_now:
        server.close()
