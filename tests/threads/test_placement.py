"""Threads of this process on the cores that were chosen for them, as the system tells it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.models import GUARD_S

from service.placement import cores
from service.placement.gil_cost import CallCost
from service.placement.rule import ModelCost, PlacementMode, Unmeasured, WorkerPlace
from service.placement.threads import Placement, WorkerSeat

pytestmark = [
    pytest.mark.usefixtures("threads_left_as_they_were"),
    pytest.mark.skipif(
        not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
        reason="needs two cores to choose from",
    ),
]

CALL = CallCost(0.001, 0.0, 1.0)
LONG_CALL = CallCost(0.1, 0.1, 1.0)
NOTHING = CallCost(0.0, 0.0, 1.0)
SHORT = ModelCost(NOTHING, CALL, CALL)
LONG = ModelCost(NOTHING, LONG_CALL, LONG_CALL)
PICTURES = ModelCost(CallCost(0.003, 0.002, 1.0), LONG_CALL, LONG_CALL)


class Seen:
    """A thread that tells, when it is asked, where it may run and in which class; it is asked from outside."""

    def __init__(self, first: Callable[[], Any]) -> None:
        self._leave = threading.Event()
        self._ready = threading.Event()
        self._first = first
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(GUARD_S)
        assert self._thread.native_id is not None
        self._id: int = self._thread.native_id

    def _run(self) -> None:
        self._first()
        self._ready.set()
        assert self._leave.wait(GUARD_S)

    @property
    def mask(self) -> set[int]:
        lines = Path(f"/proc/self/task/{self._id}/status").read_text().splitlines()
        listed = next(line for line in lines if line.startswith("Cpus_allowed_list")).split()[1]
        bounds = [part.partition("-") for part in listed.split(",")]
        return {core for low, _, high in bounds for core in range(int(low), int(high or low) + 1)}

    @property
    def is_batch(self) -> bool:
        return os.sched_getscheduler(self._id) == os.SCHED_BATCH

    def end(self) -> None:
        self._leave.set()
        self._thread.join(GUARD_S)


@pytest.fixture(autouse=True)
def this_thread_stays_where_it_was() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)
    cores.let_push(cores.all_threads())


@pytest.fixture
def thread() -> Iterator[Callable[[Callable[[], Any]], Seen]]:
    made: list[Seen] = []

    def start(first: Callable[[], Any]) -> Seen:
        made.append(Seen(first))
        return made[-1]

    yield start
    for one in made:
        one.end()


def test_http_threads_move_to_one_core_when_the_model_is_known_and_later_ones_begin_there(thread):
    placement = Placement(PlacementMode.AUTO)
    early, other = thread(placement.http_thread_starts), thread(lambda: None)
    assert early.mask == set(placement.any_core)
    placement.model_costs("m", SHORT)
    late = thread(placement.http_thread_starts)
    assert early.mask == late.mask == set(placement.one_core)
    assert other.mask == set(placement.any_core), "a thread that serves no HTTP is none of our business"


def test_no_thread_of_the_process_pushes_another_one_aside_from_then_on(thread):
    placement = Placement(PlacementMode.AUTO)
    early, other = thread(placement.http_thread_starts), thread(lambda: None)
    assert not early.is_batch
    placement.model_costs("m", SHORT)
    assert early.is_batch
    assert other.is_batch
    assert placement.report()["wakes_gently"]
    placement.model_costs("m", PICTURES)
    assert not early.is_batch
    assert not other.is_batch
    assert not placement.report()["wakes_gently"]


def test_threads_are_free_again_when_a_model_comes_that_needs_them_on_all_cores(thread):
    placement = Placement(PlacementMode.AUTO)
    http = thread(placement.http_thread_starts)
    placement.model_costs("numbers", SHORT)
    placement.model_costs("pictures", PICTURES)
    assert http.mask == set(placement.any_core)
    placement.model_left("pictures")
    assert http.mask == set(placement.one_core)
    placement.model_left("numbers")  # the last one: nothing is known that would be better
    assert http.mask == set(placement.one_core)


@pytest.mark.parametrize(("cost", "is_shared"), [(SHORT, True), (LONG, False)])
def test_the_worker_shares_the_core_for_short_calls_only(cost, is_shared):
    placement = Placement(PlacementMode.AUTO)
    placement.model_costs("m", cost)
    seat = WorkerSeat(placement)
    seat.calls()
    assert os.sched_getaffinity(0) == (placement.one_core if is_shared else placement.any_core)
    seat.called()
    assert os.sched_getaffinity(0) == (placement.one_core if is_shared else placement.any_core)


def test_a_worker_whose_calls_are_not_known_is_on_the_core_between_them_only():
    placement = Placement(PlacementMode.PIN)
    placement.model_costs("m", Unmeasured.YET)
    assert placement.choice.worker is WorkerPlace.BETWEEN_CALLS
    seat = WorkerSeat(placement)
    for _ in range(2):
        seat.calls()
        assert os.sched_getaffinity(0) == placement.any_core
        seat.called()
        assert os.sched_getaffinity(0) == placement.one_core


def test_a_model_is_loaded_on_any_core_since_native_threads_stay_where_they_begin(thread):
    placement = Placement(PlacementMode.AUTO)
    placement.model_costs("m", SHORT)
    seat = WorkerSeat(placement)
    seat.calls()
    seat.loads()
    assert os.sched_getaffinity(0) == placement.any_core
    assert thread(lambda: None).mask == set(placement.any_core)  # as a native thread's would be
    seat.calls()
    assert os.sched_getaffinity(0) == placement.one_core


def test_a_worker_that_was_started_by_a_thread_on_one_core_loads_on_all():
    placement = Placement(PlacementMode.AUTO)
    os.sched_setaffinity(0, placement.one_core)
    WorkerSeat(placement).loads()
    assert os.sched_getaffinity(0) == placement.any_core


def test_processes_take_different_cores_of_those_that_are_allowed():
    taken = [Placement(PlacementMode.AUTO, turn=turn, allowed=(3, 5, 8)).one_core for turn in range(4)]
    assert taken == [{3}, {5}, {8}, {3}]


def test_only_cores_that_the_container_allows_are_used():
    one = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {one})
    placement = Placement(PlacementMode.PIN)
    placement.model_costs("m", SHORT)
    assert placement.any_core == {one}
    assert not placement.choice.on_one_core
    assert "one core" in placement.report()["reason"]


@pytest.mark.parametrize(
    ("mode", "how", "measures"),
    [
        (PlacementMode.AUTO, {}, True),
        (PlacementMode.OFF, {}, False),
        (PlacementMode.AUTO, {"allowed": (0,)}, False),
        (PlacementMode.AUTO, {"has_other_work": True}, False),
        (PlacementMode.PIN, {"has_other_work": True}, True),
    ],
)
def test_nothing_is_measured_where_it_would_change_nothing(mode, how, measures):
    assert Placement(mode, **how).measures is measures


def test_off_leaves_every_thread_alone(thread):
    placement = Placement(PlacementMode.OFF)
    http = thread(placement.http_thread_starts)
    placement.model_costs("m", SHORT)
    seat = WorkerSeat(placement)
    seat.calls()
    assert http.mask == os.sched_getaffinity(0) == placement.any_core
    assert not http.is_batch


def test_a_system_that_forbids_it_is_served_all_the_same(thread, monkeypatch):
    def forbidden(*_: object) -> None:
        raise PermissionError(1, "as a seccomp filter does")

    monkeypatch.setattr(os, "sched_setaffinity", forbidden)
    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    placement = Placement(PlacementMode.AUTO)
    http = thread(placement.http_thread_starts)
    placement.model_costs("m", SHORT)
    WorkerSeat(placement).calls()
    assert not placement.report()["wakes_gently"]
    assert http.mask == set(placement.any_core)
    monkeypatch.undo()


def test_a_system_that_knows_no_cores_has_nothing_placed(monkeypatch):
    for name in ("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "sched_getscheduler"):
        monkeypatch.delattr(os, name)
    placement = Placement(PlacementMode.PIN)
    placement.http_thread_starts()
    placement.model_costs("m", SHORT)
    WorkerSeat(placement).calls()
    assert not cores.put(0, {0})
    assert not cores.let_finish([0])
    assert "does not place threads" in placement.report()["reason"]
    monkeypatch.undo()


def test_a_class_that_somebody_has_chosen_is_kept(thread):
    def idle() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    chosen = thread(idle)
    assert not cores.let_finish([chosen._id])
    assert os.sched_getscheduler(chosen._id) == os.SCHED_IDLE


def test_a_thread_that_has_ended_is_not_moved(thread, monkeypatch):
    placement = Placement(PlacementMode.AUTO)
    gone = thread(placement.http_thread_starts)
    gone.end()
    moved: list[int] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread_id, _: moved.append(thread_id))
    placement.model_costs("m", SHORT)
    assert gone._id not in moved
    monkeypatch.undo()


def test_an_http_thread_pushes_nobody_aside_whoever_has_started_it(thread):
    placement = Placement(PlacementMode.AUTO)
    placement.model_costs("m", SHORT)
    cores.let_push([threading.get_native_id()])  # a thread begins in the class of the one that starts it
    assert thread(placement.http_thread_starts).is_batch
