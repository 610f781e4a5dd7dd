"""Who goes first, who fills up, and how long those of low priority wait at most."""

from __future__ import annotations

import pytest
from support.core import Core

from service.batching.lanes import PATIENCE_S, Lane
from service.batching.policy import BatchLimits
from service.batching.schedulers import make_scheduler
from service.batching.tickets import LaneName, Priority, Ticket

HIGH, NORMAL, LOW = Priority


def batches(core: Core) -> list[list[object]]:
    return [list(call.rows) for call in core.model.calls]


def test_requests_of_high_priority_leave_first_whenever_they_came() -> None:
    core = Core(max_batch_size=2)
    for row, priority in [("l1", LOW), ("n1", NORMAL), ("l2", LOW), ("h1", HIGH), ("n2", NORMAL), ("h2", HIGH)]:
        core.submit([row], priority=priority)
    core.run()
    assert batches(core) == [["h1", "h2"], ["n1", "n2"], ["l1", "l2"]]


def test_lower_priorities_fill_what_is_left_of_a_batch() -> None:
    core = Core(max_batch_size=4)
    for row, priority in [("l1", LOW), ("n1", NORMAL), ("l2", LOW), ("h1", HIGH)]:
        core.submit([row], priority=priority)
    core.run()
    assert batches(core) == [["h1", "n1", "l1", "l2"]]


@pytest.mark.parametrize("scheduler", ["fifo", "length_aware", "grouped"])
def test_every_scheduler_chooses_among_the_highest_first(scheduler: str) -> None:
    core = Core(max_batch_size=2, scheduler=make_scheduler(scheduler))
    core.submit(["l1", "l2"], lengths=[5, 5], priority=LOW)
    core.submit(["h1", "h2", "h3"], lengths=[5, 90, 80], priority=HIGH)
    core.run()
    served = [row for batch in batches(core) for row in batch]
    assert set(served[:3]) == {"h1", "h2", "h3"}
    assert [len(batch) for batch in batches(core)] == [2, 2, 1]


def test_what_fills_up_keeps_within_the_token_budget() -> None:
    core = Core(max_batch_size=8, max_batch_tokens=20)
    core.submit(["h"], lengths=[5], priority=HIGH)
    core.submit(["l1", "l2", "l3"], lengths=[5, 5, 9], priority=LOW)
    core.run()
    assert batches(core) == [["h", "l1", "l2"], ["l3"]]


@pytest.mark.parametrize("priority", [NORMAL, LOW])
def test_a_request_goes_with_the_highest_after_its_patience(priority: Priority) -> None:
    core = Core(max_batch_size=1, latency_s=0.0, service_s=0.1)
    core.submit(["first", "second"], priority=HIGH)
    core.submit(["waits"], priority=priority)
    for turn in range(40):
        core.submit_at(turn * 0.1, [turn], priority=HIGH)
    core.run()
    waited_s = [batch[0] for batch in batches(core)].index("waits") * 0.1
    assert PATIENCE_S <= waited_s <= PATIENCE_S + 0.4


def test_a_bulk_request_of_low_priority_is_not_the_highest_for_ever() -> None:
    core = Core(max_batch_size=1, latency_s=0.0, service_s=0.1)
    core.submit([f"bulk{n}" for n in range(20)], priority=LOW)
    for turn in range(60):
        core.submit_at(turn * 0.1, [turn], priority=HIGH)
    core.run()
    served = [str(batch[0]) for batch in batches(core)]
    early = [row for row in served[:40] if row.startswith("bulk")]
    assert 1 <= len(early) <= 6, "one batch for each wait of a patience"


def lane_of(*waiting: tuple[str, int, Priority, float]) -> tuple[Lane, list[Ticket]]:
    """A lane after 1.5 s, where rows wait (name, tokens, priority, second of arrival); and their requests."""
    lane = Lane(LaneName(None), quantum=2)
    tickets = [
        Ticket.of([name], [tokens], key=None, deadline=9.0, priority=priority, enqueued_at=at)
        for name, tokens, priority, at in waiting
    ]
    for ticket in tickets:
        lane.add(ticket)
    lane.promote(1.5)
    return lane, tickets


def next_batch(lane: Lane, max_rows: int = 2) -> list[object]:
    return [row.payload for row in lane.select(make_scheduler("grouped"), BatchLimits(max_rows))]


@pytest.mark.parametrize("priority", [HIGH, NORMAL, LOW])
def test_among_equals_the_scheduler_sees_all_whether_they_have_lost_their_patience_or_not(priority: Priority) -> None:
    early, late = ("early", 90, priority, 0.0), ("late", 80, priority, 1.3)
    lane, _ = lane_of(early, ("short", 5, priority, 1.3), late, ("tiny", 4, priority, 1.3))
    assert next_batch(lane) == ["early", "late"]


def test_among_unequals_those_that_have_lost_their_patience_go_with_the_highest_before_their_own_kind() -> None:
    early, late = ("early", 90, NORMAL, 0.0), ("late", 80, NORMAL, 1.3)
    lane, (_, short, _, _) = lane_of(early, ("short", 5, HIGH, 1.3), ("tiny", 4, NORMAL, 1.3), late)
    assert next_batch(lane) == ["early", "short"]
    short.abandoned = True
    lane.drop(1.5)
    assert next_batch(lane) == ["early", "late"], "now they are equals"


def test_a_row_is_chosen_once_though_it_waits_with_equals_and_one_whose_caller_has_gone() -> None:
    lane, (_, _, gone) = lane_of(("early", 9, NORMAL, 0.0), ("late", 8, NORMAL, 1.3), ("gone", 7, NORMAL, 1.3))
    gone.rows = {}
    assert next_batch(lane, max_rows=4) == ["early", "late"]


def test_among_lanes_the_priority_of_the_front_row_decides() -> None:
    core = Core(max_batch_size=2)
    core.submit(["a1", "a2"], key="a", priority=LOW)
    core.submit(["b1", "b2"], key="b", priority=HIGH)
    core.submit(["c1", "c2"], key="c")
    core.run()
    assert batches(core) == [["b1", "b2"], ["c1", "c2"], ["a1", "a2"]]
