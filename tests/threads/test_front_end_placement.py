"""Where a process runs whose model is in another one, as the system tells it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator

import pytest
from support.models import GUARD_S

from service.http.openapi.probes import READINESS
from service.placement.cores import allowed_cores
from service.placement.front_end import FrontEndPlacement, keep_to
from service.placement.rule import PlacementMode

pytestmark = [
    pytest.mark.usefixtures("threads_left_as_they_were"),
    pytest.mark.skipif(len(allowed_cores()) < 2, reason="needs two cores to choose from"),
]

AUTO, OFF, PIN = PlacementMode.AUTO, PlacementMode.OFF, PlacementMode.PIN


@pytest.fixture
def cores() -> Iterator[list[int]]:
    allowed = sorted(os.sched_getaffinity(0))
    yield allowed
    keep_to(allowed)


def test_neighbours_have_cores_of_their_own():
    def core(slot: int) -> str:
        placement = FrontEndPlacement(PIN, slot, allowed=[1_004, 1_007, 1_009])  # nobody can be put there
        placement.rows_are_known(prepares_beside_python=False)
        return str(placement.report()["http_threads"])

    assert [core(slot) for slot in range(5)] == ["core 1004", "core 1007", "core 1009", "core 1004", "core 1007"]


def test_every_thread_is_kept_to_the_core_and_may_leave_it_again(cores: list[int]):
    release, seen = threading.Event(), []

    def run() -> None:
        release.wait(GUARD_S)
        seen.append(sorted(os.sched_getaffinity(0)))

    thread = threading.Thread(target=run)
    thread.start()
    placement = FrontEndPlacement(AUTO, 1)
    placement.rows_are_known(prepares_beside_python=False)
    assert sorted(os.sched_getaffinity(0)) == [cores[1]]
    release.set()
    thread.join(GUARD_S)
    assert seen == [[cores[1]]]
    assert placement.report()["wakes_gently"] is (os.sched_getscheduler(0) == os.SCHED_BATCH)
    placement.rows_are_known(prepares_beside_python=True)  # another model, after a reload
    assert sorted(os.sched_getaffinity(0)) == cores
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert not placement.report()["wakes_gently"]


def test_a_core_that_is_not_there_changes_nothing(cores: list[int]):
    keep_to([100_000])
    assert sorted(os.sched_getaffinity(0)) == cores


@pytest.mark.parametrize(
    ("mode", "allowed", "pictures", "is_put", "reason"),
    [
        (AUTO, (1_000, 1_001), False, True, "take turns"),
        (AUTO, (1_000, 1_001), True, False, "pictures"),
        (PIN, (1_000, 1_001), True, True, "THREAD_PLACEMENT=pin"),
        (OFF, (1_000, 1_001), False, False, "THREAD_PLACEMENT=off"),
        (PIN, (1_000,), False, False, "one core only"),
        (AUTO, (), False, False, "does not place"),
    ],
)
def test_where_it_runs_is_told_in_the_words_of_any_process(mode, allowed, pictures, is_put, reason, caplog):
    placement = FrontEndPlacement(mode, 0, allowed)
    assert placement.report()["reason"] == "no model has been loaded"
    with caplog.at_level(logging.INFO, "jitney"):
        placement.rows_are_known(prepares_beside_python=pictures)
        placement.rows_are_known(prepares_beside_python=pictures)
    told = placement.report()
    assert told["http_threads"] == ("core 1000" if is_put else "any core")
    assert reason in told["reason"]
    assert set(told) == set(READINESS["properties"]["thread_placement"]["required"])
    assert [record.getMessage() for record in caplog.records] == [
        f"the threads of this front end run on {told['http_threads']}: {told['reason']}"
    ]
    assert f"one={allowed[:1]}" in repr(placement)
