"""A queue that is emptied in one step."""

from __future__ import annotations

import threading

from support.callers import Callers
from support.models import GUARD_S

from service.batching.inbox import DrainedQueue


def test_all_that_is_there_comes_in_its_order_and_is_gone_then() -> None:
    inbox: DrainedQueue[int] = DrainedQueue()
    for number in range(5):
        inbox.put(number)
    assert inbox.get(timeout=GUARD_S) == 0
    assert inbox.drain() == [1, 2, 3, 4]
    assert inbox.qsize() == 0
    assert inbox.drain() == []


def test_a_reader_that_waits_is_woken_by_what_comes_after_it_was_emptied() -> None:
    inbox: DrainedQueue[str] = DrainedQueue()
    inbox.put("before")
    assert inbox.drain() == ["before"]
    callers = Callers()
    callers.start(lambda: inbox.get(timeout=GUARD_S))
    inbox.put("after")
    assert callers.finish() == ["after"]


def test_it_is_emptied_under_its_lock() -> None:
    inbox: DrainedQueue[int] = DrainedQueue()
    inbox.put(1)
    drained = threading.Event()
    callers = Callers()
    with inbox.mutex:
        callers.start(lambda: (inbox.drain(), drained.set())[0])
        assert not drained.wait(0.2), "a drain must not get past somebody who is putting something in"
    assert callers.finish() == [[1]]
