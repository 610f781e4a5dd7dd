"""How much of a call leaves Python to others, measured on calls that are known."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable

import pytest

from service.placement import samples
from service.placement.gil_cost import (
    ALONE_WAIT,
    BESIDE_WAIT,
    LONG_S,
    OTHERS,
    PAIRS,
    SEVERAL_CORES,
    CallCost,
    CallMeter,
    judged,
)
from service.placement.samples import Alone, Beside

needs_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)

PATIENCE_S = 0.5
DATA = b"x" * 3_000_000


def in_python() -> int:
    return sum(number * number for number in range(20_000))


def beside_python() -> object:
    return hashlib.sha256(DATA).digest()


def call_cost(call: Callable[[], object]) -> CallCost | None:
    """What a meter finds out at a stretch; None where the machine is too busy for that."""
    meter, give_up_at = CallMeter(call), time.monotonic() + PATIENCE_S
    while meter.cost is None and (meter.step() or time.monotonic() < give_up_at):
        pass
    return meter.cost


def is_judged(cost: CallCost | None, low: float, high: float) -> bool:
    """Whether the share lies there; a machine that other programs use may leave it open."""
    return cost is None or low <= cost.gil_free_share <= high


def test_a_call_that_computes_in_python_keeps_it_to_itself():
    assert is_judged(call_cost(in_python), 0.0, 0.4)


def test_a_call_that_waits_leaves_python_to_others_and_no_core_busy():
    cost = call_cost(lambda: time.sleep(0.002))
    assert is_judged(cost, 0.7, 1.0)
    assert cost is None or (cost.wall_s >= 0.002 and cost.cores < 0.7)


def test_a_long_call_is_measured_in_few_calls():
    assert is_judged(call_cost(lambda: time.sleep(LONG_S)), 0.7, 1.0)


ALONE = Alone(wall_s=0.01, cpu_s=0.01, waited_s=0.0, others_s=0.0)
BESIDE = Beside(wall_s=0.02, waited_s=0.0, rival_ran_s=0.01, rival_waited_s=0.0, others_s=0.0)


@pytest.mark.parametrize(
    ("wall_s", "rival_ran_s", "free_s"),
    [
        (0.02, 0.01, 0.0),  # they took turns: as long as the rival had it, the calls waited
        (0.01, 0.01, 0.01),  # side by side all the time
        (0.01, 0.004, 0.004),
        (0.015, 0.009, 0.004),  # 4 ms side by side, and 5 ms in which the calls waited
        (0.03, 0.01, 0.0),  # the machine has become slower: never less than nothing
        (0.01, 0.012, 0.01),  # or faster: never more than all
    ],
)
def test_what_the_rival_could_not_have_the_calls_have_kept(wall_s, rival_ran_s, free_s):
    cost = judged(ALONE, BESIDE._replace(wall_s=wall_s, rival_ran_s=rival_ran_s))
    assert cost == pytest.approx(CallCost(0.01, free_s, 1.0))


@pytest.mark.parametrize(
    ("alone", "beside"),
    [
        (ALONE._replace(waited_s=ALONE.wall_s * ALONE_WAIT * 1.1), BESIDE),
        (ALONE, BESIDE._replace(waited_s=BESIDE.wall_s * BESIDE_WAIT * 1.1)),
        (ALONE, BESIDE._replace(rival_waited_s=BESIDE.wall_s * BESIDE_WAIT * 1.1)),
        (ALONE._replace(others_s=ALONE.wall_s * OTHERS * 1.1), BESIDE),
        (ALONE, BESIDE._replace(others_s=BESIDE.wall_s * OTHERS * 1.1)),
        (ALONE._replace(cpu_s=0.02, others_s=0.01), None),  # these are no native threads
        (ALONE, None),
    ],
)
def test_a_sample_that_was_disturbed_is_no_sample(alone, beside):
    assert judged(ALONE, BESIDE) is not None
    assert judged(alone, beside) is None


def test_native_threads_run_beside_python_if_they_are_the_calls_own():
    busy = ALONE._replace(cpu_s=ALONE.wall_s * SEVERAL_CORES * 1.1)
    assert judged(busy, None) == pytest.approx(CallCost(0.01, 0.01, SEVERAL_CORES * 1.1))
    assert judged(busy._replace(waited_s=busy.wall_s), None) is not None, "they are seen although others use the cores"
    assert judged(busy, BESIDE, has_own_threads=False) is None


@needs_two_cores
def test_a_call_that_computes_outside_python_leaves_it_to_others_or_is_not_judged():
    cost = call_cost(beside_python)
    assert cost is None or cost.gil_free_share > 0.5


def test_samples_of_several_steps_count_together():
    meter = CallMeter(lambda: time.sleep(0.001))
    steps = counted = 0
    while meter.cost is None and steps < 500:
        steps, counted = steps + 1, counted + meter.step()
    assert meter.cost is None or counted == PAIRS


def test_no_sample_is_begun_when_somebody_waits():
    calls: list[int] = []
    meter = CallMeter(lambda: calls.append(1), has_own_threads=False)  # those of other tests may compute still
    answers = iter([True, False, False])
    assert not meter.step(lambda: next(answers)), "half a pair is none"
    seen = len(calls)
    assert not meter.step(lambda: next(answers))
    assert len(calls) == seen
    assert meter.cost is None


@pytest.mark.parametrize("beside_the_sample", ["alone", "beside"])
def test_another_thread_of_python_disturbs_a_sample(beside_the_sample):
    """As the HTTP threads of a service do whose model is swapped."""
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1000))

    other = threading.Thread(target=compute)
    other.start()
    try:
        sample = getattr(samples, beside_the_sample)(lambda: time.sleep(0.05), 1)
    finally:
        ended.set()
        other.join()
    assert sample.others_s > OTHERS * sample.wall_s


def test_threads_that_run_no_more_or_not_yet_disturb_no_sample(monkeypatch):
    over, to_come = threading.Thread(target=int), threading.Thread(target=int)
    over.start()
    over.join()
    with monkeypatch.context() as patched:
        patched.setattr(threading, "enumerate", lambda: [threading.current_thread(), over, to_come])
        sample = samples.alone(in_python, 1)
    assert 0.0 <= sample.others_s < 1e-3, "a thread ends a moment after it has been waited for"


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
