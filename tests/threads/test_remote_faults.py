"""An end that sends what it should not, or takes nothing, costs the other one a connection and no more."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from support.callers import Callers
from support.models import GUARD_S
from support.sharing import OwnerByHand, wait_until

from service.batching.admission import WorkerState
from service.batching.tickets import Priority
from service.errors import WorkerDead
from service.sharing import peer as peers
from service.sharing.asking import Asked, ask
from service.sharing.frames import FrameKind, encoded, send
from service.sharing.link import Link


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"".join(encoded(FrameKind.ASK, ["[]", [[1, 1.0, 2, "", 1, None]], ["plain", []], 0])),
        b"".join(encoded(FrameKind.ASK, None)),
        b"".join(encoded(FrameKind.CANCEL, 7)),
        b"".join(encoded(FrameKind.MODEL, [])),
        b"".join(encoded(FrameKind.ASK, None))[:-1],
    ],
)
def test_garbage_ends_its_own_connection_only(both, place, sent):
    pair = both()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(place.address)
        stranger.settimeout(GUARD_S)
        peer = pair.owner.accept(introduce=False)
        stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b""
        wait_until(lambda: peer not in pair.owner.peers)
    assert pair.ask(1).results[0].tolist() == [2.0]


def test_a_front_end_that_reads_nothing_holds_up_nobody(both, place):
    pair = both()
    big = [b"x" * 1_000_000] * 3
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(place.address)
        peer = pair.owner.accept(introduce=False)
        for _ in range(4):
            peer.tell(FrameKind.STATE, None, big)  # more than the system holds for a reader
        assert pair.ask(1).results[0].tolist() == [2.0]
    wait_until(lambda: peer not in pair.owner.peers)


def test_a_front_end_that_takes_nothing_for_too_long_is_given_up(both, place, monkeypatch):
    monkeypatch.setattr(peers, "SEND_S", 0.1)
    pair = both()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(place.address)
        peer = pair.owner.accept(introduce=False)
        peer.tell(FrameKind.STATE, None, [b"x" * 10_000_000])
        wait_until(lambda: peer not in pair.owner.peers)


@pytest.mark.parametrize("numbers, limit", [((7, 7), 9), ((7, 8), 1)])
def test_more_requests_than_a_front_end_can_have_are_not_taken(both, place, monkeypatch, numbers, limit):
    monkeypatch.setattr(peers, "MAX_REQUESTS", limit)
    pair = both()
    pair.gate.release.clear()
    requests = [Asked(number, GUARD_S, Priority.NORMAL, "", [np.array([1.0])], [1]) for number in numbers]
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(place.address)
        peer = pair.owner.accept(introduce=False)
        send(stranger, ask(((), ("f", 1)), requests))
        wait_until(lambda: peer not in pair.owner.peers)
    assert pair.owner.batcher.queued == 0


def test_an_answer_of_another_length_is_no_answer(by_hand):
    owner, front, key = by_hand
    callers = Callers()
    callers.start(lambda: front.ask([np.array([1.0])], GUARD_S, key=key))
    (number,) = owner.asked()
    info = [1, 2, "size", 0.0, 0.1, 1, 2, 1]
    owner.tell(FrameKind.ANSWER, [[[number, [0, 0]]], [info], [], ["plain", [1.0, 2.0]]])
    (outcome,) = callers.finish()
    assert type(outcome) is WorkerDead
    assert "another number of results" in str(outcome)


def test_nobody_waits_for_an_owner_whose_worker_has_ended(by_hand):
    owner, front, key = by_hand
    callers = Callers()
    callers.start(lambda: front.ask([np.array([1.0])], GUARD_S, key=key))
    owner.asked()
    wait_until(lambda: front._heard.row_s == 0.01)
    assert front.retry_after_s(100) == 1.0
    owner.tell_state(WorkerState.DEAD)
    assert isinstance(callers.finish()[0], WorkerDead)


@pytest.mark.parametrize("kind", [FrameKind.ANSWER, FrameKind.MODEL, FrameKind.FAILED, FrameKind.STATE, FrameKind.ASK])
def test_nonsense_from_an_owner_ends_the_connection_and_nothing_else(by_hand, place, kind):
    owner, _, _ = by_hand
    owner.tell(kind, 7)
    wait_until(lambda: owner.connection.recv(1) == b"")
    assert OwnerByHand(place).connection.close() is None, "it looks for the next one"


def test_one_request_that_cannot_be_sent_does_not_keep_back_its_neighbours(place):
    refused: list[int] = []
    ours, theirs = socket.socketpair()
    link = Link(ours, lambda number, error: refused.append(number))
    requests = [
        Asked(number, GUARD_S, Priority.NORMAL, "", [row], [1]) for number, row in enumerate([np.zeros(1), object()])
    ]
    send(theirs, link._frames([((), requests[0]), ((), requests[1]), 5]))
    link.close()
    link.hear(lambda frame: None)
    theirs.close()
    assert refused == [1]
