"""The master's part of one model for several processes, with owners that are real processes and own nothing."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from support.clock import FakeClock

from service.sharing import owners
from service.sharing.owners import Owners
from service.sharing.place import Place

GUARD_S = 10.0


class Master:
    """What of gunicorn's master is used. `managed`: how often its own look after its processes was called."""

    SIGNALS = (signal.SIGHUP, signal.SIGINT)

    def __init__(self) -> None:
        self.WORKERS: dict[int, Any] = {}
        self.LISTENERS: list[Any] = []
        self.cfg = SimpleNamespace(uid=os.geteuid(), gid=os.getegid(), initgroups=False, env={})
        self.log = logging.getLogger("test.master")
        self.num_workers = 2
        self.managed = 0

    def manage_workers(self) -> None:
        self.managed += 1

    def reap_workers(self) -> None:
        """As gunicorn's, it takes note of any child."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def make_worker(self, owned: Owners) -> SimpleNamespace:
        worker = SimpleNamespace()
        owned.assign(worker)
        self.WORKERS[len(self.WORKERS)] = worker
        return worker


def serves(place: Place, master_ends: int) -> bool:
    place.tell(has_model=True)
    time.sleep(GUARD_S)
    return True


def never_serves(place: Place, master_ends: int) -> bool:
    return False


def fails_to_load(place: Place, master_ends: int) -> bool:
    place.tell(has_model=False)
    time.sleep(GUARD_S)
    return True


Make = Callable[..., tuple[Master, Owners, FakeClock]]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Owners] = []

    def owned(own: Callable[[Place, int], bool] = serves) -> tuple[Master, Owners, FakeClock]:
        master, clock = Master(), FakeClock()
        made.append(Owners(master, own, clock))
        return master, made[-1], clock

    yield owned
    for one in made:
        for generation in one._generations:
            if generation.pid is not None and owners._end_of(generation.pid) is None:
                os.kill(generation.pid, signal.SIGKILL)
                os.waitpid(generation.pid, 0)
            generation.place.close()
        os.close(one._master_ends)
        os.close(one._master_lives)


def pids(owned: Owners) -> list[int | None]:
    return [generation.pid for generation in owned._generations]


def wait_until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < give_up_at, "it did not come true"
        time.sleep(0.01)


def test_an_owner_that_served_is_replaced_at_once(make: Make, caplog: pytest.LogCaptureFixture):
    master, owned, _ = make()
    (first,) = pids(owned)
    worker = master.make_worker(owned)
    wait_until(lambda: worker.owner.serves)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: master.reap_workers() or master.manage_workers() or pids(owned) != [first])
    (second,) = pids(owned)
    assert second not in (None, first)
    assert f"the process that owns the model (pid {first}) has ended by SIGKILL; the next one starts" in caplog.text
    assert master.managed > 0
    assert master.make_worker(owned).owner is worker.owner, "front ends find it where the first one was"


def test_one_that_never_serves_is_started_less_and_less_often(make: Make):
    _, owned, clock = make(never_serves)
    pauses_s = []
    for _ in range(3):
        before = clock.now
        wait_until(lambda: owned.tend() or pids(owned) == [None])
        while pids(owned) == [None]:
            clock.advance(0.25)
            owned.tend()
        pauses_s.append(clock.now - before)
    assert pauses_s == [1.0, 2.0, 4.0]


def test_a_renewed_owner_leaves_the_old_one_to_its_front_ends(make: Make):
    master, owned, _ = make()
    old = master.make_worker(owned)
    wait_until(lambda: old.owner.serves)
    owned.renew()
    new = master.make_worker(owned)
    wait_until(lambda: new.owner.serves)
    first, second = pids(owned)
    owned.tend()
    assert pids(owned) == [first, second]
    master.WORKERS = {1: new}
    wait_until(lambda: owned.tend() or pids(owned) == [second])
    assert not os.path.exists(old.owner.address)


def test_one_whose_load_has_failed_is_no_front_ends_owner(make: Make):
    master, owned, _ = make()
    old = master.make_worker(owned)
    wait_until(lambda: old.owner.serves)
    owned._own = fails_to_load
    owned.renew()
    wait_until(lambda: owned._generations[-1].place.has_failed)
    assert master.make_worker(owned).owner is old.owner
    wait_until(lambda: owned.tend() or len(pids(owned)) == 1)


def test_all_owners_end_and_nothing_is_left_of_their_places(make: Make):
    _, owned, _ = make()
    owned.renew()
    places = [generation.place for generation in owned._generations]
    wait_until(lambda: all(place.serves for place in places))
    owned._clock = time.monotonic
    owned.end()
    assert not any(os.path.exists(place.address) for place in places)
    assert all(owners._end_of(pid) is not None for pid in pids(owned) if pid is not None)


def test_an_owner_that_does_not_end_is_killed(make: Make, monkeypatch: pytest.MonkeyPatch):
    def deaf(place: Place, master_ends: int) -> bool:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return serves(place, master_ends)

    _, owned, _ = make(deaf)
    wait_until(lambda: owned._generations[0].place.serves)
    monkeypatch.setattr(owners, "END_S", 0.1)
    owned._clock = time.monotonic
    owned.end()
    wait_until(lambda: all(owners._end_of(pid) is not None for pid in pids(owned) if pid is not None))


def test_an_owner_hears_when_its_master_and_all_that_it_started_are_gone(make: Make):
    def listens(place: Place, master_ends: int) -> bool:
        place.tell(has_model=os.read(master_ends, 1) == b"")
        return True

    _, owned, _ = make(listens)
    place = owned._generations[0].place
    assert not place.serves
    os.close(owned._master_lives)
    owned._master_lives = os.dup(owned._master_ends)
    wait_until(lambda: place.serves)


def test_front_ends_have_slots_of_their_own_also_when_one_takes_the_place_of_another(make: Make):
    master, owned, _ = make()
    first, second = master.make_worker(owned), master.make_worker(owned)
    assert [first.slot, second.slot] == [0, 1]
    master.WORKERS = {1: second}
    assert master.make_worker(owned).slot == 0
