"""The judge of the fault run finds what a server must not do."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from benchmark.endurance.client import End, Reply
from benchmark.endurance.counters import Counted, differences
from benchmark.endurance.ledger import Disturbance, Ledger
from benchmark.endurance.prober import Prober
from benchmark.endurance.traffic import Sent

KINDS_WITH_ROWS = frozenset({200})


def reply(
    status: int | None, body: object = None, *, end: End = End.ANSWERED, reused: bool = True, **more: Any
) -> Reply:
    headers = {"X-Model-Version": "2", **more}
    return Reply(end, 10.0, 11.0, reused, status, 7, headers, json.dumps(body).encode())


def sent(got: Reply, statuses: frozenset[int] = KINDS_WITH_ROWS) -> Sent:
    return Sent("single row", 1, statuses, [5.0], got)


def right(value: float = 10.0) -> Reply:
    return reply(200, {"predictions": [value], "model_version": "2"})


def judged(one: Sent, *disturbances: Disturbance) -> list[str]:
    ledger = Ledger()
    ledger.add(one)
    ledger.disturbances += disturbances
    return ledger.violations()


def test_an_answer_is_right_only_with_the_value_that_its_own_version_gives():
    assert judged(sent(right())) == []
    assert "wrong answer" in judged(sent(right(5.0)))[0]


@pytest.mark.parametrize("status", [500, 503, 504, 404, 418])
def test_an_error_that_nothing_explains_is_a_violation(status):
    assert judged(sent(reply(status, {"title": "Something"}))) != []


def test_an_error_without_a_problem_document_is_a_violation():
    assert judged(sent(reply(422, {"title": "Invalid input"}), frozenset({422}))) == []
    assert "no problem document" in judged(sent(reply(422, "oops"), frozenset({422})))[0]


def test_a_full_queue_must_say_when_to_come_back():
    assert judged(sent(reply(429, {"title": "Queue full"}, **{"Retry-After": "1"}))) == []
    assert judged(sent(reply(429, {"title": "Queue full"}))) != []


@pytest.mark.parametrize("end", [End.HUNG, End.CLOSED, End.CUT])
def test_a_request_without_an_end_of_its_own_is_a_violation(end):
    assert judged(sent(reply(None, end=end))) != []
    assert judged(sent(reply(None, end=End.ABORTED))) == []


def test_a_fault_excuses_only_what_it_explains_and_only_while_it_lasts():
    closing = Disturbance("killed", 10.5, 12.0, frozenset({503}), closes=True)
    assert judged(sent(reply(None, end=End.CLOSED)), closing) == []
    assert judged(sent(reply(503, {"title": "Worker dead"})), closing) == []
    assert judged(sent(reply(504, {"title": "Deadline exceeded"})), closing) != []
    assert judged(sent(reply(None, end=End.HUNG)), closing) != []
    assert judged(sent(reply(None, end=End.CLOSED)), Disturbance("later", 11.5, 12.0, closes=True)) != []


def test_where_only_kept_connections_may_be_closed_a_new_one_or_half_an_answer_is_a_violation():
    gentle = Disturbance("reload", 10.5, 12.0, closes=True, only_kept=True)
    assert judged(sent(reply(None, end=End.CLOSED, reused=True)), gentle) == []
    assert judged(sent(reply(None, end=End.CLOSED, reused=False)), gentle) != []
    assert judged(sent(reply(None, end=End.CUT)), gentle) != []


def counted(requests: dict[int, int], *, rows: int, failed: int = 0, abandoned: int = 0, **rejected: int) -> Counted:
    return Counted(Counter(requests), Counter(rejected), rows, failed, abandoned)


def test_counters_that_agree_with_what_was_seen_have_no_differences():
    seen = [sent(right()), sent(reply(500, {})), sent(reply(504, {})), sent(reply(None, end=End.ABORTED))]
    assert differences(counted({200: 1, 500: 1, 504: 1}, rows=2, failed=1, deadline=1), seen) == []
    assert differences(counted({200: 1, 500: 1, 504: 1, 499: 1}, rows=3, failed=1, abandoned=1, deadline=1), seen) == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (counted({500: 1, 504: 1}, rows=2, failed=1, deadline=1), "requests with 200"),
        (counted({200: 2, 500: 2, 504: 1}, rows=2, failed=1, deadline=1), "all requests"),
        (counted({200: 1, 500: 1, 504: 1, 503: 2}, rows=2, failed=1, deadline=1), "requests with 503"),
        (counted({200: 1, 500: 1, 504: 1}, rows=0, failed=1, deadline=1), "rows"),
        (counted({200: 1, 500: 1, 504: 1}, rows=9, failed=1, deadline=1), "rows"),
        (counted({200: 1, 500: 1, 504: 1}, rows=2, failed=0, deadline=1), "failed rows"),
        (counted({200: 1, 500: 1, 504: 1}, rows=2, failed=1), "rejected, deadline"),
        (counted({200: 1, 500: 1, 504: 1, 499: 1}, rows=2, failed=1, deadline=1), "abandoned rows"),
        (counted({200: 1, 500: 1, 504: 1}, rows=2, failed=1, deadline=1, worker_dead=5), "worker_dead"),
    ],
)
def test_a_counter_that_disagrees_is_named(wrong, told):
    seen = [sent(right()), sent(reply(500, {})), sent(reply(504, {})), sent(reply(None, end=End.ABORTED))]
    assert any(told in difference for difference in differences(wrong, seen))


class Scripted:
    """A client whose answers are given beforehand."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    def ask(self, *_: object) -> Reply:
        return self._replies.pop(0)

    def predict(self, _: object) -> Reply:
        return self._replies.pop(0)


class AlwaysFive:
    def randrange(self, *_: int) -> int:
        return 5


@pytest.mark.parametrize(
    ("before", "predicted", "after", "lies"),
    [
        (reply(200), reply(503, {}), reply(200), 1),
        (reply(200), reply(None, end=End.HUNG), reply(200), 1),
        (reply(200), reply(503, {}), reply(503), 0),
        (reply(200), right(), reply(200), 0),
    ],
)
def test_health_lies_where_it_is_well_before_and_after_a_prediction_that_failed(before, predicted, after, lies):
    prober = Prober(Scripted(before, predicted, after), Ledger(), AlwaysFive())
    prober()
    assert (prober.asked, len(prober.lies)) == (1, lies)
