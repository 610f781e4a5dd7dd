"""What a front end has received and not asked for yet: it tells its owner, whose worker thread waits for that."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import numpy as np
import pytest
from support.callers import Callers
from support.clock import FakeClock
from support.models import GUARD_S
from support.sharing import Heard, OwnerByHand, front_end

from service.batching.policy import UNREAD_WAIT_S
from service.batching.tickets import Priority
from service.sharing.asking import Asked, ask, asked
from service.sharing.frames import FrameError, FrameReader, send
from service.sharing.owner import Owner
from service.sharing.peer import Peer

ROW = Asked(1, GUARD_S, Priority.NORMAL, "", [np.array([1.0])], [1])
LANE = ((), ("f", 1))


class Door:
    """Admits nothing, and notes what its peer tells of others at the moment in which a frame is inside."""

    def __init__(self) -> None:
        self.coming: list[int] = []
        self.peer: Peer

    def announce(self):
        return self

    def release(self) -> None:
        self.coming.append(self.peer.coming())

    def enter(self, *_, **__):
        return SimpleNamespace()

    def leave(self, ticket) -> None:
        pass


class Told:
    """A peer that was told of so many."""

    def __init__(self, count: int) -> None:
        self.coming = lambda: count


@pytest.fixture
def hears():
    """A peer that has heard a frame for each of some numbers of requests that will follow, its door and its clock."""
    ours, theirs = socket.socketpair()

    def told(*numbers: int):
        door, clock = Door(), FakeClock()
        peer = door.peer = Peer(theirs, lambda: door, lambda lane: lane, str, lambda peer: None, clock)
        for at, coming in enumerate(numbers):
            send(ours, ask(LANE, [ROW._replace(number=at)], coming))
        ours.shutdown(socket.SHUT_WR)
        peer.start()
        peer._reader.join(GUARD_S)
        return peer, door, clock

    yield told
    ours.close()


def test_a_front_end_tells_how_many_requests_it_has_received_beside_those_that_it_asks_for(place):
    front = front_end(place, heard := Heard(), on_the_way=lambda: 7)
    front.start()
    owner = OwnerByHand(place)
    assert front.wait_started(GUARD_S)
    callers = Callers()
    callers.start(lambda: front.ask([np.array([1.0])], GUARD_S, key=(heard.models[-1], *LANE)))
    requests, coming = owner.asked_and_coming()
    assert (len(requests), coming) == (1, 7)
    owner.connection.close()
    callers.finish()
    front.close(0.0)


def test_the_newest_word_counts_and_is_there_before_the_worker_looks(hears):
    peer, door, _ = hears(5, 2)
    assert door.coming == [5, 2]
    assert peer.coming() == 2


def test_what_does_not_come_is_waited_for_no_longer_than_any_batch_would(hears):
    peer, _, clock = hears(5)
    clock.advance(0.9 * UNREAD_WAIT_S)
    assert peer.coming() == 5
    clock.advance(0.1 * UNREAD_WAIT_S)
    assert peer.coming() == 0


def test_an_owner_has_its_batcher_wait_for_what_all_front_ends_have_received():
    runtime = SimpleNamespace(on_the_way=None)
    owner = Owner(runtime, SimpleNamespace(), 0, 0.0)
    owner._peers = {Told(2), Told(0), Told(3)}
    assert runtime.on_the_way() == 5
    owner._wake.close()
    owner._woken.close()


def test_a_number_that_is_none_is_no_frame():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, ask(LANE, [ROW], "many"))
        frame = FrameReader(theirs).read()
        with pytest.raises(FrameError):
            asked(frame)
