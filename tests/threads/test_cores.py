from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from loaders.signature import ImageInput, TabularInput, TextInput
from service.sharing.cores import core_for, keep_to, works_without_interpreter


@pytest.fixture
def cores() -> Iterator[list[int]]:
    allowed = sorted(os.sched_getaffinity(0))
    yield allowed
    keep_to(allowed)


def test_neighbours_have_cores_of_their_own():
    assert [core_for(slot, [4, 7, 9]) for slot in range(5)] == [4, 7, 9, 4, 7]


def test_every_thread_is_kept_to_the_core_and_may_leave_it_again(cores: list[int]):
    release, seen = threading.Event(), []

    def run() -> None:
        release.wait(5.0)
        seen.append(sorted(os.sched_getaffinity(0)))

    thread = threading.Thread(target=run)
    thread.start()
    keep_to(cores[:1])
    assert sorted(os.sched_getaffinity(0)) == cores[:1]
    release.set()
    thread.join(5.0)
    assert seen == [cores[:1]]
    keep_to(cores)
    assert sorted(os.sched_getaffinity(0)) == cores


def test_a_core_that_is_not_there_changes_nothing(cores: list[int]):
    keep_to([100_000])
    assert sorted(os.sched_getaffinity(0)) == cores


def test_only_pictures_are_prepared_without_the_interpreter():
    kinds = [TabularInput(), TextInput(), ImageInput(8, 8)]
    assert [works_without_interpreter(kind) for kind in kinds] == [False, False, True]
