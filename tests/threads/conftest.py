"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.repositories import Scripted, registered, served_from

from service.placement.cores import all_threads, let_push
from service.runtime import Runtime


@pytest.fixture
def threads_left_as_they_were() -> Iterator[None]:
    """For tests that place the threads of this process: servers that later tests start inherit their class."""
    yield
    let_push(all_threads())


@pytest.fixture
def loader() -> Iterator[Scripted]:
    with registered(Scripted()) as loader:
        yield loader


@pytest.fixture
def serve(tmp_path: Path, loader: Scripted) -> Iterator[Callable[..., Runtime]]:
    """A started runtime over a repository of these versions; `loader` belongs to it."""
    with served_from(tmp_path, loader.fmt, request_timeout_ms=5000) as serve:
        yield serve
