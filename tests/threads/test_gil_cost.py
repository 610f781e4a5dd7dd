"""How much of a call leaves Python to others, measured on calls that are known."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from service.placement.gil_cost import BUDGET_S, LONG_S, CallCost, call_cost

needs_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)

DATA = b"x" * 3_000_000


def in_python() -> int:
    return sum(number * number for number in range(20_000))


def beside_python() -> object:
    return hashlib.sha256(DATA).digest()


def measured(call: Callable[[], object]) -> CallCost:
    """What `call` costs; tried again while other programs use the cores."""
    for _ in range(10):
        if (cost := call_cost(call)) is not None:
            return cost
    pytest.fail("other programs leave no core for this measurement")


def test_a_call_that_computes_in_python_keeps_it_to_itself():
    cost = measured(in_python)
    assert cost.wall_s > 0
    assert cost.gil_free_share < 0.4


def test_a_call_that_waits_leaves_python_to_others_and_no_core_busy():
    cost = measured(lambda: time.sleep(0.002))
    assert 0.002 <= cost.wall_s < 0.02
    assert cost.gil_free_share > 0.8
    assert cost.cores < 0.7


def test_a_long_call_is_measured_in_few_calls():
    assert measured(lambda: time.sleep(LONG_S)).gil_free_share > 0.8


@needs_two_cores
def test_a_call_that_computes_outside_python_leaves_it_to_others_or_is_not_judged():
    cost = call_cost(beside_python)
    assert cost is None or cost.gil_free_share > 0.5


@needs_two_cores
def test_nothing_is_concluded_from_a_measurement_that_another_program_disturbs():
    cores = os.sched_getaffinity(0)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(busy.pid, {min(cores)})
        os.sched_setaffinity(0, {min(cores)})
        began = time.monotonic()
        assert call_cost(beside_python) is None
        assert time.monotonic() - began < 10 * BUDGET_S
    finally:
        os.sched_setaffinity(0, cores)
        busy.kill()
        busy.wait()


@needs_two_cores
def test_the_native_threads_of_another_call_are_not_taken_for_those_of_this_one():
    stop = threading.Event()

    def another() -> None:
        while not stop.is_set():
            beside_python()

    thread = threading.Thread(target=another)
    thread.start()
    try:
        assert call_cost(beside_python, has_own_threads=False) is None
    finally:
        stop.set()
        thread.join()


def test_the_interpreter_is_left_as_it_was_also_by_a_call_that_fails():
    interval, threads = sys.getswitchinterval(), threading.active_count()
    calls = []

    def fails_late() -> None:
        calls.append(1)
        time.sleep(0.06)
        if len(calls) >= 3:
            raise ValueError("later than it was seen to work")

    with pytest.raises(ValueError, match="later"):
        call_cost(fails_late)
    assert sys.getswitchinterval() == interval
    assert threading.active_count() == threads


def test_a_call_that_takes_no_time_has_no_share():
    assert CallCost(0.0, 0.0, 1.0).gil_free_share == 0.0
