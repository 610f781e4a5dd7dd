"""A signal that is given once."""

from __future__ import annotations

from support.callers import Callers
from support.models import GUARD_S

from service.batching.latch import Latch


def test_a_wait_ends_with_the_signal_and_every_later_one_at_once() -> None:
    latch = Latch()
    assert not latch.is_set()
    assert not latch.wait(0.0)
    latch.set()
    assert latch.is_set()
    assert latch.wait(0.0)
    assert latch.wait(0.0)


def test_a_wait_that_ran_out_takes_nothing_from_the_next() -> None:
    latch = Latch()
    assert not latch.wait(0.01)
    latch.set()
    assert latch.wait(0.0)


def test_a_signal_wakes_the_thread_that_waits() -> None:
    latch = Latch()
    callers = Callers()
    callers.start(lambda: latch.wait(GUARD_S))
    latch.set()
    assert callers.finish() == [True]


def test_a_signal_that_is_given_twice_is_one_signal() -> None:
    latch = Latch()
    latch.set()
    latch.set()
    assert latch.wait(0.0)
    latch.set()
    assert latch.wait(0.0)
