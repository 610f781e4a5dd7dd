"""Where the threads of a real server run, as the system tells it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from service.placement.cores import allowed_cores

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(len(allowed_cores()) < 2, reason="needs two cores to choose from"),
]

ALL = set(allowed_cores())


def children(pid: int) -> list[int]:
    listings = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for listing in listings for child in listing.read_text().split())


def masks(pid: int) -> dict[str, set[int]]:
    """For each thread of a process, native ones included, by the system's id: the cores that it may use."""
    found: dict[str, set[int]] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has just ended
            status = dict(line.partition(":\t")[::2] for line in (task / "status").read_text().splitlines())
            bounds = [part.partition("-") for part in status["Cpus_allowed_list"].split(",")]
            found[task.name] = {core for low, _, high in bounds for core in range(int(low), int(high or low) + 1)}
    return found


def placement(server: Any) -> dict[str, Any]:
    told: dict[str, Any] = server.get("/healthz").json()["thread_placement"]
    return told


def test_pin_puts_the_threads_of_python_on_one_core(start):
    server = start(THREAD_PLACEMENT="pin")
    [pid] = children(server.process.pid)
    for number in range(4):
        assert server.predict([0, number]).status_code == 200
    told = placement(server)
    core = int(told["http_threads"].removeprefix("core "))
    assert masks(pid)[str(pid)] == {core}, "the thread that hands requests out"
    assert list(masks(pid).values()).count({core}) >= 3, "that one, one that serves, and the worker between its calls"
    assert told["worker_thread"] == f"core {core}, any core while the model runs"
    assert f"HTTP threads run on core {core}" in server.text()


def test_a_thread_that_is_woken_pushes_nobody_aside(start):
    server = start(THREAD_PLACEMENT="pin")
    [pid] = children(server.process.pid)
    assert server.predict([0, 1]).status_code == 200
    if placement(server)["wakes_gently"]:  # where no filter forbids it
        assert {os.sched_getscheduler(int(task)) for task in masks(pid)} == {os.SCHED_BATCH}


def test_auto_goes_by_what_warm_up_measured(start):
    server = start(app="short_calls:app")
    [pid] = children(server.process.pid)
    assert server.predict([1.0, 2.0]).status_code == 200
    told, here = placement(server), list(masks(pid).values())
    if told["http_threads"] == "any core":  # the machine was too busy for a measurement
        assert "too busy" in told["reason"]
        assert told["to_be_measured"]["models"] == ["m/1"]
        assert here.count(ALL) == len(here)
    else:
        assert told["worker_thread"] == told["http_threads"]
        assert here.count({int(told["http_threads"].removeprefix("core "))}) >= 3


@pytest.fixture
def hogs() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Other programs that want every core all the time, several for each."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(4 * len(ALL))]
    yield running
    for process in running:
        process.kill()
        process.wait()


def test_a_model_that_was_loaded_on_a_busy_machine_is_measured_when_that_is_quiet(start, hogs):
    server = start(app="short_calls:app")
    told = placement(server)
    if told["to_be_measured"] is not None:
        assert told["http_threads"] == "any core"
        [line] = [line for line in server.text().splitlines() if "too busy" in line]
        assert '"level":"warning"' in line
    for process in hogs:
        process.kill()
        process.wait()
    give_up_at = time.monotonic() + 30.0
    while (told := placement(server))["to_be_measured"] is not None and time.monotonic() < give_up_at:
        time.sleep(0.1)
    assert server.predict([1.0, 2.0]).status_code == 200
    if told["to_be_measured"] is None:
        assert told["http_threads"].startswith("core ")
        assert f"HTTP threads run on {told['http_threads']}" in server.text()
    else:  # others use this machine all the time
        assert told["to_be_measured"]["for_s"] > 1.0
    assert server.stop() == 0


def test_the_front_ends_of_one_model_tell_where_they_run(start):
    server = start("-w", "2", MODEL_SHARING="one", app="short_calls:app")
    told = {placement(server)["http_threads"] for _ in range(30)}
    assert told <= {f"core {core}" for core in ALL}
    assert placement(server)["worker_thread"] == "any core, in the process that owns the model"
    assert "the threads of this front end run on core" in server.text()
    pinned = [pid for pid in children(server.process.pid) if len(masks(pid)[str(pid)]) == 1]
    assert len(pinned) == 2
    for pid in pinned:
        assert len({frozenset(mask) for mask in masks(pid).values()}) == 1, "all threads of a front end are together"


def test_the_master_is_not_moved(start):
    server = start(THREAD_PLACEMENT="pin")
    master = server.process.pid
    assert masks(master) == {str(master): ALL}
    assert os.sched_getscheduler(master) != os.SCHED_BATCH


def test_off_leaves_every_thread_where_the_system_puts_it(start):
    server = start(THREAD_PLACEMENT="off", app="short_calls:app")
    [pid] = children(server.process.pid)
    assert server.predict([1.0, 2.0]).status_code == 200
    assert all(mask == ALL for mask in masks(pid).values())
    assert placement(server)["reason"] == "THREAD_PLACEMENT=off"


def test_several_processes_take_different_cores_also_after_one_was_replaced(start):
    server = start("-w", "2", THREAD_PLACEMENT="pin")

    def are_apart() -> bool:
        pids = children(server.process.pid)
        taken = [masks(pid).get(str(pid), ALL) for pid in pids]
        return len(pids) == 2 and all(len(mask) == 1 for mask in taken) and taken[0] != taken[1]

    server.wait_until(are_apart)
    first = children(server.process.pid)[0]
    os.kill(first, signal.SIGKILL)
    server.wait_until(lambda: first not in children(server.process.pid) and are_apart())


def test_only_the_cores_of_the_container_are_used(start):
    before = os.sched_getaffinity(0)
    only = max(before)
    os.sched_setaffinity(0, {only})
    try:
        server = start(THREAD_PLACEMENT="pin")
    finally:
        os.sched_setaffinity(0, before)
    [pid] = children(server.process.pid)
    assert all(mask == {only} for mask in masks(pid).values())
    assert placement(server)["reason"] == "there is one core only"


def test_an_app_with_routes_of_its_own_is_left_alone(start):
    server = start(app="own_routes:app")
    [pid] = children(server.process.pid)
    assert server.predict([1.0, 2.0]).status_code == 200
    assert all(mask == ALL for mask in masks(pid).values())
    assert "routes of its own" in placement(server)["reason"]
