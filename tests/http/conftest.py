"""Apps around small models, each with a runtime that is closed when its test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from served import GUARD_S, Served, as_handle, sums

from loaders.handle import ModelHandle
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
