"""A signal that is given once."""

from __future__ import annotations

import threading

import pytest
from support.callers import Callers
from support.models import GUARD_S

from service.batching.one_shot import OneShotEvent


def test_a_wait_ends_with_the_signal_and_every_later_one_at_once() -> None:
    event = OneShotEvent()
    assert not event.is_set()
    assert not event.wait(0.0)
    event.set()
    assert event.is_set()
    assert event.wait(0.0)
    assert event.wait(0.0)


def test_a_wait_that_ran_out_takes_nothing_from_the_next() -> None:
    event = OneShotEvent()
    assert not event.wait(0.01)
    event.set()
    assert event.wait(0.0)


def test_a_signal_wakes_the_thread_that_waits() -> None:
    event = OneShotEvent()
    callers = Callers()
    callers.start(lambda: event.wait(GUARD_S))
    event.set()
    assert callers.finish() == [True]


def test_a_signal_that_is_given_twice_is_one_signal() -> None:
    event = OneShotEvent()
    event.set()
    event.set()
    assert event.wait(0.0)
    event.set()
    assert event.wait(0.0)


def test_it_is_an_event_and_serves_one_request():
    event = OneShotEvent()
    assert isinstance(event, threading.Event)
    assert repr(event) == "<OneShotEvent unset>"
    with pytest.raises(RuntimeError, match="cannot be used again"):
        event.clear()


def test_a_thread_uses_the_gate_of_its_last_request_again() -> None:
    first = OneShotEvent()
    gate = first._gate
    first.set()
    assert first.wait(GUARD_S)
    second = OneShotEvent()
    assert second._gate is gate
    assert not second.wait(0.0), "the gate must be closed again"


def test_two_requests_at_a_time_never_share_a_gate() -> None:
    first = OneShotEvent()
    first.set()
    assert first.wait(GUARD_S)
    second, third = OneShotEvent(), OneShotEvent()
    second.set()
    assert not third.wait(0.0)


def test_a_signal_that_comes_after_the_waiter_has_given_up_wakes_no_later_request() -> None:
    late = OneShotEvent()
    assert not late.wait(0.01)
    following = OneShotEvent()
    late.set()
    assert not following.wait(0.0)


def test_a_second_signal_that_comes_after_the_waiter_has_gone_on_wakes_no_later_request() -> None:
    answered = OneShotEvent()
    answered.set()
    assert answered.wait(GUARD_S)
    following = OneShotEvent()
    answered.set()
    assert not following.wait(0.0)


def test_a_signal_that_was_there_before_the_wait_leaves_the_gate_closed() -> None:
    early = OneShotEvent()
    early.set()
    assert early.is_set()
    assert early.wait(0.0)
    assert not OneShotEvent().wait(0.0)
