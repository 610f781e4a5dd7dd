"""What gunicorn's master does about processes that could not start."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from gunicorn.errors import HaltServer

from service.server.failed_starts import RETRY_S, FailedStarts
from service.server.succession import Succession
from tests.support.clock import FakeClock


class Master:
    """The part of gunicorn's master that sees the ends of processes, as it is."""

    def __init__(self, wanted: int) -> None:
        self.num_workers = wanted
        self.WORKERS: dict[int, SimpleNamespace] = {}
        self.log = logging.getLogger("master")
        self.cfg = SimpleNamespace(child_exit=lambda _server, worker: self.forgotten.append(worker.pid))
        self.forgotten: list[int] = []
        self.spawned = 0
        self.unreaped: list[tuple[int, int]] = []
        self.clock = FakeClock()
        FailedStarts(self, self.clock)

    def process(self, *, serves: bool, is_relief: bool = False) -> int:
        pid = 100 + len(self.WORKERS)
        succession = Succession(is_relief=is_relief)
        if serves:
            succession.begin()
        tmp = SimpleNamespace(close=lambda: None)
        self.WORKERS[pid] = SimpleNamespace(pid=pid, succession=succession, tmp=tmp)
        return pid

    def ends(self, *ends: tuple[int, int]) -> None:
        self.unreaped += ends
        self.reap_workers()

    def reap_workers(self) -> None:
        while self.unreaped:
            pid, status = self.unreaped.pop(0)
            worker = self.WORKERS.pop(pid)
            if status in (3, 4):
                raise HaltServer("it could not start", status)
            self.cfg.child_exit(self, worker)

    def spawn_workers(self) -> None:
        self.spawned += 1

    def stop(self, graceful: bool = True) -> None:
        self.reap_workers()


@pytest.mark.parametrize("status", [3, 4])
def test_a_process_that_cannot_start_ends_nothing_while_others_serve(status, caplog):
    master = Master(wanted=2)
    master.process(serves=True)
    failed = master.process(serves=False, is_relief=True)
    master.ends((failed, status))
    assert list(master.WORKERS) == [100]
    assert master.forgotten == [failed]
    assert "1 others go on to serve, and the next try is in 10 s" in caplog.text


def test_those_that_ended_in_the_same_moment_are_seen_too():
    master = Master(wanted=1)
    master.process(serves=True)
    failed, killed = (master.process(serves=False, is_relief=True) for _ in range(2))
    master.ends((failed, 3), (killed, 0))
    assert list(master.WORKERS) == [100]


def test_the_next_try_waits_unless_nobody_serves_any_more():
    master = Master(wanted=2)
    serving = master.process(serves=True)
    master.ends((master.process(serves=False, is_relief=True), 3))
    master.spawn_workers()
    assert master.spawned == 0
    master.clock.advance(RETRY_S)
    master.spawn_workers()
    assert master.spawned == 1
    master.ends((master.process(serves=False, is_relief=True), 3))
    master.ends((serving, 0))
    master.spawn_workers()
    assert master.spawned == 2


def test_a_failure_ends_the_service_where_nobody_serves():
    master = Master(wanted=1)
    with pytest.raises(HaltServer):
        master.ends((master.process(serves=False, is_relief=True), 3))


def test_a_failure_at_the_start_ends_the_service_although_another_process_was_faster():
    master = Master(wanted=2)
    master.process(serves=True)
    with pytest.raises(HaltServer):
        master.ends((master.process(serves=False), 3))


def test_one_failure_settles_the_exit_status_and_those_that_follow_change_nothing():
    master = Master(wanted=3)
    first, *others = (master.process(serves=False) for _ in range(3))
    with pytest.raises(HaltServer):
        master.ends((first, 3))
    master.unreaped = [(pid, 3) for pid in others]
    master.stop()
    assert master.WORKERS == {}
