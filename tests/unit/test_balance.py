"""Which of several worker processes takes a new connection."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from service.server import balance
from service.server.balance import LEAVE_S, MOST_IN_VAIN, Balance, OpenCounts
from service.server.poller import Poller
from service.server.traffic import Traffic
from service.server.worker import Worker


def neighbours(*told: int) -> Balance:
    """A process beside others that have told so many."""
    counts = OpenCounts(len(told) + 1)
    own = counts.balance(())
    assert own is not None
    for slot, count in enumerate(told, start=1):
        other = counts.balance(range(slot))
        assert other is not None
        other.tell(count)
    return own


@pytest.mark.parametrize(
    ("own", "others", "takes"),
    [
        (0, (0,), True),
        (1, (0,), True),
        (2, (0,), False),
        (90, (80,), True),
        (91, (80,), True),
        (92, (80,), False),
        (500, (), True),
        (10, (50, 4, 50), False),
        (5, (50, 4, 50), True),
    ],
)
def test_a_process_takes_a_connection_unless_another_one_has_clearly_fewer(own, others, takes):
    assert neighbours(*others).takes(own) is takes


def test_a_process_that_does_not_accept_is_left_nothing():
    one, other = pair()
    assert one.takes(50)
    other.tell(0)
    assert not one.takes(50)
    other.withdraw()
    assert one.takes(50)


def pair() -> tuple[Balance, Balance]:
    counts = OpenCounts(2)
    one, other = counts.balance(()), counts.balance((0,))
    assert one is not None
    assert other is not None
    return one, other


def test_who_has_left_connections_returns_when_another_has_caught_up_or_time_is_up():
    one, other = pair()
    other.tell(0)
    one.leave(10.0)
    assert not one.is_to_return(10, now=10.0)
    assert not one.is_to_return(10, now=10.0 + LEAVE_S - 0.0001)
    assert one.is_to_return(10, now=10.0 + LEAVE_S)
    other.tell(9)
    assert one.is_to_return(10, now=10.0)


def taken_after(one: Balance, own: int) -> int:
    """How many connections are taken before one is left again."""
    return next(count for count in range(2 * MOST_IN_VAIN) if not one.takes(own))


def test_each_wait_in_vain_is_followed_by_more_connections_up_to_a_limit():
    one = neighbours(0)
    assert not one.takes(10)
    taken = []
    for _ in range(MOST_IN_VAIN + 2):
        one.returned(10)
        taken.append(1 + taken_after(one, 10))
    assert taken == [*range(1, MOST_IN_VAIN + 1), MOST_IN_VAIN, MOST_IN_VAIN]


def test_nothing_more_is_taken_once_the_process_with_the_fewest_has_taken_a_connection():
    one, other = pair()
    other.tell(0)
    assert not one.takes(10)
    for _ in range(5):
        one.returned(10)
    other.tell(1)
    assert taken_after(one, 10) == 0
    one.returned(10)
    assert one.takes(2)


def test_the_wait_of_single_connections_does_not_add_up_for_several_processes_beside_one_that_hangs():
    counts = OpenCounts(4)
    hanging, *others = (counts.balance(range(slot)) for slot in range(4))
    assert hanging is not None
    hanging.tell(0)
    open_at = {one: 10 for one in others if one is not None}
    for one, count in open_at.items():
        one.tell(count)
    waited = 0
    for _ in range(500):
        taker = next((one for one, count in open_at.items() if one.takes(count)), None)
        if taker is None:  # all have left it, and all return; one finds it
            waited += 1
            for one, count in open_at.items():
                one.returned(count)
            taker = next(iter(open_at))
        open_at[taker] += 1
        taker.tell(open_at[taker])
    assert waited < 60


def master(workers: int, *, reuse_port: bool = False) -> SimpleNamespace:
    server = SimpleNamespace(num_workers=workers, cfg=SimpleNamespace(reuse_port=reuse_port), WORKERS={})
    balance.begin(server)
    return server


def spawn(server: SimpleNamespace) -> SimpleNamespace:
    worker = SimpleNamespace()
    balance.assign(server, worker)
    server.WORKERS[100 + len(server.WORKERS)] = worker
    return worker


def test_a_process_gets_a_slot_that_none_of_the_others_has():
    server = master(2)
    workers = [spawn(server) for _ in range(4)]
    assert [worker.balance.slot for worker in workers] == [0, 1, 2, 3]
    del server.WORKERS[101]
    assert spawn(server).balance.slot == 1


def test_a_process_that_finds_no_slot_is_made_without_one():
    server = master(2)
    slots = [spawn(server).balance for _ in range(20)]
    assert slots[-1] is None
    assert sum(slot is not None for slot in slots) >= 8
    balance.forget(SimpleNamespace(balance=None))


@pytest.mark.parametrize("server", [master(1), master(2, reuse_port=True)])
def test_a_single_process_and_those_with_sockets_of_their_own_leave_nothing_to_others(server):
    assert spawn(server).balance is None


def test_a_process_that_is_gone_is_left_nothing():
    server = master(2)
    one, gone = spawn(server), spawn(server)
    gone.balance.tell(0)
    assert not one.balance.takes(10)
    balance.forget(gone)
    assert one.balance.takes(10)


# When the time is up in which connections are left to others.
LATER = 1e6


class Accepting(Worker):
    """A worker with a listening socket and nothing else around it; what it accepts is kept in `traffic.open`."""

    def __init__(self, listeners: list[socket.socket], own: Balance | None) -> None:
        self.sockets = listeners
        self.worker_connections = 1000
        self.balance = own
        self.succession = SimpleNamespace(serves=True, may_accept=True)
        self.alive = True
        self.traffic = Traffic(1, keeps_open=True)
        self._poller = Poller()
        self._is_accepting = self._is_away = False
        self._reception = SimpleNamespace(received=lambda claimed: None)
        self._set_accepting(True)

    def _accept(self, listener: socket.socket) -> bool:
        try:
            client, _ = listener.accept()
        except BlockingIOError:
            return False
        self.traffic.open.add(client)
        return True

    def turn(self, now: float) -> int:
        """What one turn has accepted."""
        before = len(self.traffic.open)
        self._look_at = now + 1.0  # it waits no longer
        self._turn(now)
        return len(self.traffic.open) - before

    def end(self) -> None:
        self._set_accepting(False)
        self._poller.close()
        for client in self.traffic.open:
            client.close()


@pytest.fixture
def crowded():
    """A process that has clearly more than another one, its listening socket, and six clients that wait there."""
    own, other = pair()
    other.tell(0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(6)]
        worker = Accepting([listener], own)
        for _ in range(2):
            worker.turn(0.0)
        yield worker, other
        worker.end()
        for client in clients:
            client.close()


def test_what_is_left_to_others_does_not_keep_a_process_busy(crowded):
    worker, _ = crowded
    assert worker.turn(0.0) == 0
    assert worker._is_away
    assert worker._poller.wait(0.0) == []
    assert len(worker.traffic.open) == 2


def test_what_nobody_else_takes_in_time_is_taken(crowded):
    worker, _ = crowded
    worker.turn(0.0)
    assert worker.turn(0.0) == 0
    assert worker.turn(LATER) == 1
    assert worker._is_away
    assert worker.turn(LATER) == 2  # as the next one was left in vain, too


def test_a_process_goes_on_to_accept_when_another_has_caught_up(crowded):
    worker, other = crowded
    worker.turn(0.0)
    other.tell(3)
    assert worker.turn(0.0) == 2
    assert not worker._is_away


def test_a_process_that_loads_accepts_and_is_left_nothing(crowded):
    worker, other = crowded
    worker.succession.serves = False
    other.tell(1000)
    worker._tell_others()
    assert other.takes(1000)
    worker.succession.serves = True
    worker._tell_others()
    assert not other.takes(1000)


def test_a_process_that_stops_accepting_while_it_leaves_connections_to_others_comes_back_to_none(crowded):
    worker, other = crowded
    worker.turn(0.0)
    worker._set_accepting(False)
    assert not worker._is_away
    assert worker._poller.wait(0.0) == []
    assert len(worker.traffic.open) == 2
    other.tell(1000)
    assert other.takes(1000)
