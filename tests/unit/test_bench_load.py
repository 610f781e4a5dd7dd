"""How requests are sent off; the servers are functions, and the callers greenlets of the test's own thread."""

from __future__ import annotations

import gevent
import pytest
from gevent.lock import Semaphore

from service.bench.arrivals import constant, until
from service.bench.client import Answer
from service.bench.load import Load
from service.bench.result import result_of

STALL_S = 0.3


class OneAtATime:
    """A server that serves one request at a time, and is stuck in the first of them."""

    def __init__(self) -> None:
        self._free = Semaphore()
        self._is_first = True
        self.asked: list[int] = []

    def __call__(self, body: int) -> Answer:
        with self._free:
            self.asked.append(body)
            if self._is_first:
                self._is_first = False
                gevent.sleep(STALL_S)
            return "200", b""


def test_an_open_loop_sees_a_stall_in_every_request_that_was_due_during_it():
    load = Load(OneAtATime(), bodies=3)
    load.open(until(0.5, constant(100)), duration_s=0.5)
    assert len(load.exchanges) == 50
    stalled = [one for one in load.exchanges if one.due_s < STALL_S]
    assert len(stalled) == 30
    assert all(one.done_s - one.due_s >= STALL_S - one.due_s for one in stalled)
    assert result_of(load.exchanges, [1, 1, 1], 0.5).latency_ms.p50 >= 50


def test_an_open_loop_goes_on_sending_while_nobody_answers_and_tells_what_was_left():
    def never(_: int) -> Answer:
        gevent.sleep(60)
        raise AssertionError

    load = Load(never, bodies=1, patience_s=0.05)
    load.open([0.0, 0.01, 0.02], duration_s=0.03)
    assert [one.outcome for one in load.exchanges] == ["unanswered"] * 3
    assert sorted(one.due_s for one in load.exchanges) == [0.0, 0.01, 0.02]
    assert all(one.sent_s < 0.05 <= one.done_s for one in load.exchanges)


def test_a_request_that_waits_for_a_connection_is_told_to_be_late():
    load = Load(OneAtATime(), bodies=1, connections=2)
    load.open([0.0] * 5, duration_s=0.1)
    late_s = sorted(one.sent_s - one.due_s for one in load.exchanges)
    assert max(late_s[:2]) < STALL_S <= min(late_s[3:])


def test_what_no_connection_was_free_for_in_time_is_not_sent_and_the_load_ends():
    asked = []

    def never(body: int) -> Answer:
        asked.append(body)
        gevent.sleep(60)
        raise AssertionError

    load = Load(never, bodies=1, connections=2, patience_s=0.05)
    load.open(until(0.1, constant(100)), duration_s=0.1)
    outcomes = [one.outcome for one in load.exchanges]
    assert (outcomes.count("not sent"), outcomes.count("unanswered"), len(asked)) == (8, 2, 2)
    # What was never sent says nothing of how late requests were sent.
    assert result_of(load.exchanges, [1], 0.1).late_ms.max < 50


def test_a_rate_that_cannot_be_kept_ends_in_time():
    def ask(_: int) -> Answer:
        gevent.sleep(0.02)
        return "200", b""

    load = Load(ask, bodies=1, connections=1, patience_s=0.1)
    load.open(until(0.2, constant(1000)), duration_s=0.2)
    assert len(load.exchanges) == 200
    assert max(one.done_s for one in load.exchanges) < 1.0
    assert {one.outcome for one in load.exchanges} == {"200", "not sent"}


def test_requests_that_are_due_at_once_are_out_at_once():
    out = []

    def together(_: int) -> Answer:
        out.append(1)
        gevent.sleep(0.05)
        assert len(out) == 4
        return "200", b""

    load = Load(together, bodies=1)
    load.open([0.0] * 4, duration_s=0.1)
    assert [one.outcome for one in load.exchanges] == ["200"] * 4


def test_a_closed_loop_has_no_more_requests_out_than_callers():
    out = most = 0

    def ask(_: int) -> Answer:
        nonlocal out, most
        out += 1
        most = max(most, out)
        gevent.sleep(0.005)
        out -= 1
        return "200", b""

    load = Load(ask, bodies=2)
    load.closed(callers=3, duration_s=0.1)
    assert (most, out) == (3, 0)
    assert len(load.exchanges) >= 3
    assert all(one.due_s < 0.1 for one in load.exchanges)


def test_every_body_is_sent():
    load = Load(asked := OneAtATime(), bodies=7)
    load.open([0.0] * 14, duration_s=0.1)
    assert sorted(asked.asked) == sorted([*range(7)] * 2)


def test_wrong_answers_are_marked_and_failures_are_not_looked_at():
    answers = [("200", b"right"), ("200", b"wrong"), ("500", b"wrong")]
    load = Load(lambda body: answers[body], bodies=3, check=lambda _, content: content == b"right")
    load.open([0.0] * 3, duration_s=0.1)
    assert sorted((one.outcome, one.wrong) for one in load.exchanges) == [
        ("200", False),
        ("200", True),
        ("500", False),
    ]


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_progress_is_told_while_it_lasts(kind):
    told: list[float] = []

    def ask(_: int) -> Answer:
        gevent.sleep(0.01)
        return "200", b""

    load = Load(ask, bodies=1, progress=told.append)
    if kind == "closed":
        load.closed(1, 0.5)
    else:
        load.open(until(0.5, constant(10)), 0.5)
    assert len(told) >= 2
    assert told == sorted(told)
    assert all(0 <= fraction <= 1 for fraction in told)


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_what_goes_wrong_in_a_check_is_not_hidden(kind):
    def check(_body: int, _content: bytes) -> bool:
        raise RuntimeError("a fault of the program")

    load = Load(lambda _: ("200", b""), bodies=1, check=check)
    run = {"closed": lambda: load.closed(1, 0.1), "open": lambda: load.open([0.0], 0.1)}[kind]
    with pytest.raises(RuntimeError, match="a fault"):
        run()
