"""What is done on the worker thread when nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.gates import Gates
from support.models import GUARD_S

from service.batching.batcher import ThreadedBatcher
from service.errors import NotReady
from service.models import spare_time
from service.models.spare_time import SpareTime

SOON_S = 0.005


class Host:
    """A batcher with a model whose batches a test holds. `asked`: how often it was looked for."""

    def __init__(self) -> None:
        self.gates = Gates()
        self.draining = False
        self.asked = threading.Semaphore(0)
        self._batcher = ThreadedBatcher(self.gates, max_batch_latency_s=0.0, policy="eager")

    def batcher(self) -> ThreadedBatcher:
        self.asked.release()
        return self._batcher


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    with made._batcher:
        yield made
        made.gates.let_go("all")


class Work:
    """Comes further as often as the test says; `left`: how often until it is done."""

    def __init__(self, came_further: Callable[[int], bool] = lambda times: True, left: int = 1) -> None:
        self._came_further = came_further
        self.left = left
        self.threads: list[str] = []
        self.tries = threading.Semaphore(0)

    def __call__(self, may_go_on: Callable[[], bool]) -> bool:
        assert may_go_on()
        self.threads.append(threading.current_thread().name)
        self.left -= 1
        self.tries.release()
        return self._came_further(len(self.threads))

    def wait_for(self, tries: int) -> None:
        for _ in range(tries):
            assert self.tries.acquire(timeout=GUARD_S), "it is not tried"


def spare(host: Any, work: Work, first_s: float = SOON_S) -> SpareTime:
    return SpareTime(host, work, lambda: work.left > 0, first_s=first_s)


def waits(made: SpareTime) -> bool:
    return made._thread is not None and made._thread.is_alive()


def test_work_is_done_on_the_worker_thread_until_nothing_is_left_and_then_nobody_waits(host):
    work = Work(left=3)
    made = spare(host, work)
    made.begin()
    thread = made._thread
    made.begin()
    assert made._thread is thread, "one thread waits"
    work.wait_for(3)
    assert thread is not None
    thread.join(GUARD_S)
    assert work.threads == ["jitney-worker"] * 3
    work.left = 1  # something new
    made.begin()
    work.wait_for(1)
    made.close()


def test_work_that_comes_no_further_is_tried_at_growing_distances_but_not_without_bound(host, monkeypatch):
    monkeypatch.setattr(spare_time, "LONGEST_S", 4 * SOON_S)
    distances: list[float] = []
    work = Work(came_further=lambda times: times == 5, left=6)
    made = spare(host, work)
    wait = made._closed.wait
    made._closed.wait = lambda timeout=None: distances.append(timeout) or wait(timeout)  # type: ignore[method-assign]
    made.begin()
    work.wait_for(6)
    made.close()
    assert [round(distance / SOON_S) for distance in distances[:6]] == [1, 2, 4, 4, 4, 1]


def test_nothing_is_tried_while_rows_wait(host):
    work = Work()
    callers = [threading.Thread(target=host._batcher.submit, args=([name],)) for name in ("first", "second")]
    callers[0].start()
    host.gates.wait_for("first")
    callers[1].start()
    while host._batcher.queued == 0:
        callers[1].join(0.001)
    made = spare(host, work)
    made.begin()
    for _ in range(5):
        assert host.asked.acquire(timeout=GUARD_S)
    assert not work.threads
    host.gates.let_go("all")
    work.wait_for(1)
    for caller in callers:
        caller.join(GUARD_S)
    made.close()


def test_nothing_is_tried_while_a_batch_runs():
    """A job would wait for it, and keep worker threads from others' rows that have nothing to do."""

    class Busy:
        draining, queued = False, 0

        def batcher(self) -> Any:
            return self

        def status(self) -> Any:
            return SimpleNamespace(busy_instances=1)

        def call(self, *_: object) -> bool:
            raise AssertionError("a job was asked for")

    assert spare(Busy(), Work())._try() is None


def test_a_row_that_comes_before_the_job_begins_goes_first(host):
    """The look and the job are two steps; a batch that runs in between holds the job up."""
    work, told = Work(), []
    made = spare(host, work)
    callers = [threading.Thread(target=host._batcher.submit, args=([name],)) for name in ("first", "second")]
    callers[0].start()
    host.gates.wait_for("first")
    trying = threading.Thread(target=lambda: told.append(host._batcher.call(made._job)))
    trying.start()
    while not host._batcher._admission.jobs:
        trying.join(0.001)
    callers[1].start()
    while host._batcher.queued == 0:
        callers[1].join(0.001)
    host.gates.let_go("all")
    for thread in (trying, *callers):
        thread.join(GUARD_S)
    assert told == [None], "that was no try"
    assert not work.threads


def test_nothing_is_begun_once_the_service_stops(host):
    work = Work()
    made = spare(host, work, first_s=3600.0)
    host.draining = True
    assert made._try() is None
    assert made._job() is None
    assert not work.threads


def test_the_thread_that_waits_ends_with_the_batcher(host):
    work = Work()
    made = spare(host, work)
    host._batcher.close()
    made.begin()
    thread = made._thread
    assert thread is not None
    thread.join(GUARD_S)
    assert not thread.is_alive()
    assert not work.threads


def test_it_waits_for_a_service_that_is_still_loading(host):
    work, asked = Work(), []

    class Loading:
        draining = False

        def batcher(self) -> Any:
            asked.append(1)
            if len(asked) < 3:
                raise NotReady("the model is still loading")
            return host.batcher()

    made = SpareTime(Loading(), work, lambda: work.left > 0, first_s=SOON_S)
    made.begin()
    work.wait_for(1)
    made.close()


def test_a_closed_one_ends_and_begins_no_more(host):
    work = Work()
    made = spare(host, work, first_s=3600.0)
    made.begin()
    thread = made._thread
    assert thread is not None
    made.close()
    thread.join(GUARD_S)
    assert not thread.is_alive()
    made.begin()
    assert not waits(made)
