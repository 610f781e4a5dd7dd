"""A batcher belongs to the process that made it; a child neither hangs nor harms it."""

from __future__ import annotations

import os
import select
import traceback
import warnings
from collections.abc import Callable

import pytest
from support.callers import Callers
from support.models import GUARD_S
from support.parking import Parking, ParkingClock

from service.batching.batcher import ThreadedBatcher
from service.errors import NotReady

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def said_by_child(body: Callable[[], str]) -> str:
    """What `body` returns in a forked child."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what is tested
        pid = os.fork()
    if pid == 0:
        try:
            said = body()
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], GUARD_S)
        if not ready:
            os.kill(pid, 9)
        said = os.read(reading, 65536).decode() if ready else "the child hangs"
    finally:
        os.close(reading)
        os.waitpid(pid, 0)
    return said


def tried(action: Callable[[], object]) -> str:
    try:
        return repr(action())
    except NotReady as error:
        return str(error)


def test_a_child_is_told_and_does_not_hang_although_the_lock_was_held_when_it_was_made() -> None:
    parking = Parking()
    batcher = ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0, clock=ParkingClock("caller-0", 2, parking))
    batcher.start()
    arrival = batcher.announce()
    callers = Callers()
    callers.start(lambda: batcher.submit(["inside"]))
    assert parking.parked.wait(GUARD_S)  # it holds the admission's lock now

    def child() -> str:
        arrival.release()
        attempts = [lambda: batcher.submit([1]), batcher.announce, batcher.start, batcher.close]
        return "|".join(tried(attempt) for attempt in attempts)

    refusal = "this batcher was made before a fork; make and start one in the child process"
    assert said_by_child(child).split("|") == [refusal, refusal, refusal, "True"]
    parking.go.set()
    assert callers.finish() == [["inside"]]
    assert batcher.submit(["parent"]) == ["parent"]
    assert batcher.close()


def test_a_child_can_make_a_batcher_of_its_own() -> None:
    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0) as parents:
        assert parents.submit([1]) == [1]

        def child() -> str:
            with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0) as own:
                return repr(own.submit(["child"]))

        assert said_by_child(child) == "['child']"
        assert parents.submit([2]) == [2]
