"""Threads that take what is put to them."""

from __future__ import annotations

import threading

from support.models import GUARD_S

from service.server.threads import Crew


def test_each_thread_is_prepared_before_it_does_anything():
    prepared, done, all_done = set(), [], threading.Event()

    def work(item: int) -> None:
        assert threading.get_ident() in prepared
        done.append(item)
        if len(done) == 100:
            all_done.set()

    crew = Crew("crew", 4, work, lambda: prepared.add(threading.get_ident()))
    for item in range(100):
        crew.put(item)
    assert all_done.wait(GUARD_S)
    crew.end(GUARD_S)
    assert sorted(done) == list(range(100))
    assert len(prepared) == 4


def test_one_thread_that_is_held_up_holds_up_no_other():
    held, released, done = threading.Event(), threading.Event(), threading.Event()

    def work(item: str) -> None:
        if item == "slow":
            held.set()
            released.wait(GUARD_S)
        else:
            done.set()

    crew = Crew("crew", 2, work, None)
    crew.put("slow")
    assert held.wait(GUARD_S)
    crew.put("quick")
    assert done.wait(GUARD_S)
    crew.end(0.0)  # does not wait for what is stuck
    released.set()
    crew.end(GUARD_S)


def test_what_was_put_is_done_before_the_end():
    done = []
    crew = Crew("crew", 1, done.append, None)
    for item in range(50):
        crew.put(item)
    crew.end(GUARD_S)
    assert done == list(range(50))
