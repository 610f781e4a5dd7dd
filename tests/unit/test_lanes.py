"""Order inside a lane: nobody is overtaken without bound, whoever else is waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.core import Core

from service.batching.lanes import MAX_PASSES, Lanes
from service.batching.policy import BatchLimits, BatchPolicy, Company
from service.batching.tickets import Row, Ticket


def test_a_request_larger_than_a_batch_is_split_and_put_together_again() -> None:
    core = Core(max_batch_size=4, latency_s=1.0)
    ticket = core.submit(list(range(10)))
    core.run()
    assert core.model.sizes == [4, 4, 2]
    assert core.outcome(ticket) == list(range(10))


def test_a_bulk_request_lets_single_rows_through() -> None:
    core = Core(max_batch_size=4, latency_s=1.0, service_s=1.0)
    bulk = core.submit([f"bulk{row}" for row in range(20)])
    for row in range(4):
        core.submit_at(0.5, [f"single{row}"])
    core.run()
    # The bulk request queued again before they came: one more batch of it, then they.
    assert core.model.calls[2].rows == ["single0", "single1", "single2", "single3"]
    assert core.outcome(bulk) == [f"bulk{row}" for row in range(20)]
    assert [row for row in core.model.seen if row.startswith("bulk")] == [f"bulk{row}" for row in range(20)]


def test_two_bulk_requests_take_turns() -> None:
    core = Core(max_batch_size=2, latency_s=1.0)
    core.submit(["a"] * 6)
    core.submit(["b"] * 6)
    core.run()
    assert [call.rows[0] for call in core.model.calls] == ["a", "b", "a", "b", "a", "b"]


def test_a_bulk_request_in_one_lane_does_not_hold_up_a_single_row_in_another() -> None:
    core = Core(max_batch_size=4, latency_s=1.0, service_s=1.0)
    core.submit(["bulk"] * 40, key="bulk")
    core.submit_at(0.5, ["single"], key="single")
    core.run()
    assert [call.key for call in core.model.calls][:4].count("single") == 1


def test_what_is_left_of_a_batch_is_filled_with_the_bulk_requests_later_rows() -> None:
    core = Core(max_batch_size=4, latency_s=1.0)
    core.submit(["bulk"] * 5)
    core.submit(["single"])
    core.run()
    assert core.model.sizes == [4, 2]
    assert core.model.calls[1].rows == ["single", "bulk"]


class Refusing:
    """Never chooses the row at the front while there is another."""

    def look_ahead(self, limits: BatchLimits) -> int:
        return 1000

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
        return [len(rows) - 1]


def test_a_scheduler_that_passes_over_the_front_row_is_overruled_in_time() -> None:
    core = Core(max_batch_size=2, latency_s=1.0, scheduler=Refusing())
    for row in range(3 * MAX_PASSES):
        core.submit([row])
    core.run()
    assert [call.rows for call in core.model.calls].index([0, 1]) == MAX_PASSES
    core.assert_at_rest()


def test_a_row_is_not_passed_over_for_ever_because_its_neighbours_in_the_request_are_served() -> None:
    class KeepsTheFirst(Refusing):
        def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
            return [1 % len(rows)]

    core = Core(max_batch_size=64, latency_s=1.0, scheduler=KeepsTheFirst())
    core.submit(list(range(60)))
    core.run()
    assert 0 in [row for call in core.model.calls[: MAX_PASSES + 1] for row in call.rows]


@pytest.mark.parametrize("keys", [1, 3])
def test_lanes_forget_requests_that_are_over_while_a_bulk_request_is_still_waiting(keys: int) -> None:
    core = Core(max_batch_size=2, latency_s=1.0, service_s=1.0)
    most = 0

    def look(call: object) -> float:
        nonlocal most
        most = max(most, max((len(lane._arrivals) for lane in core.worker._lanes._lanes), default=0))
        return 1.0

    core = Core(max_batch_size=2, latency_s=1.0, service_s=look)
    core.submit(["bulk"] * 100)
    for moment in range(90):
        core.submit_at(float(moment), ["single"])
    core.run()
    assert most < 95
    core.assert_at_rest()
    assert not core.worker._lanes._lanes


def test_lanes_of_keys_that_are_never_seen_again_do_not_pile_up() -> None:
    core = Core(latency_s=1.0)
    for moment in range(50):
        core.submit_at(float(2 * moment), ["row"], key=f"key{moment}")
    core.run()
    assert len(core.model.calls) == 50
    assert not core.worker._lanes
    assert repr(core.worker._lanes) == "<Lanes []>"


def test_a_lane_shows_its_key_and_counts() -> None:
    shown: list[str] = []
    core = Core(max_batch_size=2, latency_s=1.0, before=lambda call: shown.append(repr(core.worker._lanes)))
    core.submit(["a"] * 3, key="k")
    core.run()
    assert shown == ["<Lanes [<Lane 'k' rows=1 requests=1>]>", "<Lanes []>"]


class CountingLimits(BatchLimits):
    """Counts how many lanes are judged in full: each is asked about its tokens once."""

    judged = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "max_tokens":
            CountingLimits.judged += 1
        return super().__getattribute__(name)


def test_of_many_lanes_that_may_send_only_the_first_are_judged_in_full() -> None:
    lanes = Lanes(quantum=4, company=Company(BatchPolicy.WINDOW, 1.0))
    for number in range(1000):
        lanes.add(Ticket.of(["row"], [1], key=number, deadline=9999.0, enqueued_at=float(number)))
    CountingLimits.judged = 0
    chosen = lanes.ready(2000.0, CountingLimits(4), draining=False, patience_s=1.0)
    assert chosen is not None
    assert (chosen[0].key, chosen[1]) == (0, "latency")
    assert CountingLimits.judged == 1


@pytest.mark.parametrize(("lengths", "leaves"), [([4, 4], False), ([4, 4, 4], True), ([4, 4, 5], True), ([13], True)])
def test_rows_leave_for_their_tokens_when_the_budget_is_used_up_exactly_or_beyond(
    lengths: list[int], leaves: bool
) -> None:
    lanes = Lanes(quantum=4, company=Company(BatchPolicy.WINDOW, 1.0))
    lanes.add(Ticket.of(["row"] * len(lengths), lengths, key=None, deadline=9.0))
    chosen = lanes.ready(0.0, BatchLimits(4, max_tokens=12), draining=False, patience_s=1.0)
    assert (chosen is not None and chosen[1] == "tokens") is leaves
