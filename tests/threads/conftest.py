"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.models import GUARD_S
from support.repositories import Scripted, registered, served_from
from support.sharing import Both, Heard, Key, OwnerByHand, front_end

from service.placement.cores import all_threads, let_push
from service.runtime import Runtime
from service.sharing.place import Place
from service.sharing.remote import RemoteBatcher


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


@pytest.fixture
def place() -> Iterator[Place]:
    """Where front ends find an owner; nobody is there yet."""
    made = Place()
    made.listener.settimeout(GUARD_S)
    yield made
    made.close()


@pytest.fixture
def both(place: Place) -> Iterator[Callable[..., Both]]:
    """Makes a front end and its owner; options: of the owner's batcher."""
    made: list[Both] = []

    def make(**options: Any) -> Both:
        made.append(Both(place, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def by_hand(place: Place) -> Iterator[tuple[OwnerByHand, RemoteBatcher, Key]]:
    """An owner, the front end that has heard of its model, and a key of that."""
    heard = Heard()
    front = front_end(place, heard)
    front.start()
    owner = OwnerByHand(place)
    assert front.wait_started(GUARD_S)
    yield owner, front, (heard.models[0], (), ())
    front.close(0.0)
    owner.connection.close()
