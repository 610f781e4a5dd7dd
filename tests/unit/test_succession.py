"""Which worker processes gunicorn's master keeps while others load."""

from __future__ import annotations

from signal import SIGTERM
from types import SimpleNamespace

import pytest

from service.server.succession import Relief, Succession, kept, place
from service.server.traffic import Traffic
from service.server.worker import Worker


def process(state: str) -> Succession:
    one = Succession()
    if state in ("serves", "retiring"):
        one.begin()
    one.is_retiring = state == "retiring"
    return one


@pytest.mark.parametrize(
    ("oldest_first", "wanted", "positions"),
    [
        ([], 1, []),
        (["serves"], 1, []),
        (["serves", "loads"], 1, [0]),
        (["serves", "serves"], 1, []),
        (["retiring", "serves", "loads"], 1, [1]),
        (["retiring", "loads"], 1, []),
        (["loads", "loads"], 1, []),
        (["serves", "loads", "loads"], 1, [0]),
        (["serves", "serves", "loads"], 1, [1]),
        (["serves", "serves", "loads", "loads"], 2, [0, 1]),
        (["serves", "serves", "serves", "loads"], 2, [1]),
        (["serves", "serves", "serves"], 2, []),
    ],
)
def test_a_process_goes_on_as_long_as_too_few_younger_ones_serve(oldest_first, wanted, positions):
    processes = [process(state) for state in oldest_first]
    assert [processes.index(one) for one in kept(processes, wanted)] == positions


class Master:
    """The part of gunicorn's master that decides who is stopped, as it is."""

    def __init__(self, wanted: int) -> None:
        self.num_workers = wanted
        self.systemd, self.master_pid, self.reexec_pid = False, 0, 0
        self.cfg = SimpleNamespace(address=[("127.0.0.1", 8000)])
        self.WORKERS: dict[int, SimpleNamespace] = {}
        self.killed: list[int] = []
        self.has_waited = False
        self.signs_of_life: list[int] = []
        self.murders = 0
        Relief(self)

    def spawn(self) -> Succession:
        pid = 100 + len(self.WORKERS)
        tmp = SimpleNamespace(notify=lambda: self.signs_of_life.append(pid))
        self.WORKERS[pid] = SimpleNamespace(age=pid, succession=place(self), tmp=tmp)
        return self.WORKERS[pid].succession

    def manage_workers(self) -> None:
        for pid in sorted(self.WORKERS)[: max(0, len(self.WORKERS) - self.num_workers)]:
            self.kill_worker(pid, SIGTERM)

    def reload(self) -> None:
        for _ in range(self.num_workers):
            self.spawn()
        self.manage_workers()
        self.has_waited = True

    def murder_workers(self) -> None:
        self.murders += 1

    def kill_worker(self, pid: int, number: int) -> None:
        assert number == SIGTERM
        self.killed.append(pid)


def test_the_old_process_is_stopped_when_the_new_one_serves_and_not_before():
    master = Master(wanted=1)
    master.spawn().begin()
    young = master.spawn()
    master.manage_workers()
    assert master.killed == []
    young.begin()
    master.manage_workers()
    assert master.killed == [100]
    assert master.WORKERS[100].succession.is_retiring


def test_a_reload_does_not_wait_for_the_end_of_the_old_processes():
    master = Master(wanted=2)
    for _ in range(2):
        master.spawn().begin()
    master.reload()
    assert len(master.WORKERS) == 4
    assert (master.killed, master.has_waited) == ([], False)
    master.manage_workers()  # and what is managed later ends as it always did
    for worker in master.WORKERS.values():
        worker.succession.begin()
    master.manage_workers()
    assert master.killed == [100, 101]


def test_a_process_that_loads_is_not_taken_for_one_that_hangs():
    master = Master(wanted=2)
    master.spawn().begin()
    loading = master.spawn()
    master.murder_workers()
    assert (master.signs_of_life, master.murders) == ([101], 1)
    loading.begin()
    master.murder_workers()
    assert (master.signs_of_life, master.murders) == ([101], 2)


def test_a_process_that_was_still_loading_when_a_newer_one_came_is_stopped_at_once():
    master = Master(wanted=1)
    master.spawn().begin()
    master.spawn()
    master.spawn()
    master.manage_workers()
    assert master.killed == [101]


def test_the_place_of_a_process_says_who_serves_beside_it():
    master = Master(wanted=2)
    first = master.spawn()
    assert (first.is_relief, first.is_surplus) == (False, False)
    first.begin()
    second = master.spawn()
    assert (second.is_relief, second.is_surplus) == (True, False)
    second.begin()
    third = master.spawn()
    assert (third.is_relief, third.is_surplus) == (True, True)


def test_a_process_accepts_while_it_loads_only_where_nobody_else_serves():
    assert Succession().may_accept
    relief = Succession(is_relief=True)
    assert not relief.may_accept
    relief.begin()
    assert relief.may_accept


def test_a_process_of_a_master_that_replaces_another_leaves_the_clients_to_that_one_while_it_loads():
    master = Master(wanted=1)
    master.master_pid = 7
    assert master.spawn().is_relief


def test_sockets_that_were_given_by_number_belong_to_others_too():
    master = Master(wanted=1)
    master.cfg.address = [3]
    assert master.spawn().shares_listeners


@pytest.mark.parametrize("other", ["systemd", "master_pid", "reexec_pid"])
def test_a_process_knows_whether_others_go_on_with_its_listening_sockets(other):
    master = Master(wanted=1)
    early = master.spawn()
    assert not early.shares_listeners
    setattr(master, other, 1)
    master.manage_workers()
    assert early.shares_listeners
    assert master.spawn().shares_listeners
    setattr(master, other, 0)
    master.manage_workers()
    assert not early.shares_listeners


class Told(Worker):
    """A worker as it is told to stop, without gunicorn around it."""

    def __init__(self) -> None:
        self.alive, self._hurry = True, False
        self.is_master_listening = True
        self.succession = Succession()
        self.traffic = Traffic(1, keeps_open=True)

    def _is_master_listening(self) -> bool:
        return self.is_master_listening

    def told(self) -> bool:
        self.handle_exit(SIGTERM, None)
        assert not self.alive
        assert self.traffic.stops
        return self.is_relieved


def test_a_stop_is_a_relief_as_long_as_the_master_listens():
    worker = Told()
    assert worker.told()
    assert worker.told()  # gunicorn's master says it again and again
    worker.is_master_listening = False
    assert not worker.told()


def test_a_stop_is_a_relief_where_others_go_on_with_the_listening_sockets():
    worker = Told()
    worker.is_master_listening = False
    worker.succession.shares_listeners = True
    assert worker.told()


def test_a_stop_of_the_whole_service_stays_one():
    worker = Told()
    worker.is_master_listening = False
    assert not worker.told()
    worker.is_master_listening = True
    assert not worker.told()


def test_a_process_that_cannot_answer_any_more_is_in_a_hurry_and_not_relieved():
    worker = Told()
    worker._hurry = True
    assert not worker.told()
