"""The scheduler that goes by what batches take: what it learns, what it chooses, how long it may make a row wait."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core import Core
from support.models import Call

from service.batching.cost import MOST_TABLES, PROBE_EVERY, TOLERANCE, Cost
from service.batching.cost_table import CALL_TOKENS, MOST_SURPRISE, STEP, CostTable
from service.batching.policy import BatchLimits
from service.batching.schedulers import Auto, LearningScheduler, make_scheduler
from service.batching.tickets import FlushReason, LaneName, Row, Ticket

Takes = Callable[[int, int], float]
LANE = LaneName(None)
SIZES = [1, 2, 4, 8, 16, 32]
LENGTHS = [4, 8, 16, 32, 64, 128]


def by_call(rows: int, length: int) -> float:
    """A device for which one row takes as long as many do."""
    return 0.01


def by_token(rows: int, length: int) -> float:
    """A model to which only the tokens matter."""
    return 1e-4 * rows * length


def by_cache(rows: int, length: int) -> float:
    """A processor that is at its best with 512 tokens: fewer do not fill it, more do not fit its cache."""
    tokens = rows * length
    return 1e-4 * tokens * (1 + 2 * max(0.0, tokens / 512 - 1)) + 0.005


def taught(takes: Takes) -> Cost:
    scheduler = Cost()
    for rows in SIZES:
        for length in LENGTHS:
            scheduler.learn(LANE, rows, length, takes(rows, length))
    return scheduler


def rows_of(lengths: Sequence[int]) -> list[Row]:
    return list(Ticket.of([None] * len(lengths), lengths, key=None, deadline=1.0).rows.values())


def chosen(scheduler: Cost, lengths: Sequence[int], max_rows: int = 32) -> list[int]:
    """Lengths of the batch."""
    return [lengths[position] for position in scheduler.select(rows_of(lengths), BatchLimits(max_rows), 0)]


@pytest.mark.parametrize("takes", [by_call, by_token, by_cache])
def test_the_table_tells_what_it_has_seen_and_what_lies_between(takes: Takes) -> None:
    table = taught(takes).table(LANE)
    for rows in SIZES:
        for length in LENGTHS:
            assert float(table.seconds(rows, length)) == pytest.approx(takes(rows, length), rel=1e-6)
    for rows, length in [(3, 12), (6, 100), (24, 48), (12, 5)]:
        assert float(table.seconds(rows, length)) == pytest.approx(takes(rows, length), rel=0.3)


def test_what_is_unknown_counts_as_the_nearest_that_is_known() -> None:
    table = CostTable()
    assert not table
    table.observe(8, 64, 0.5)
    assert table
    assert float(table.seconds(8, 64)) == pytest.approx(0.5)
    assert table.known() == [(8, 64, pytest.approx(0.5))]
    assert 0.4 < float(table.seconds(1, 1)) < 0.5 < float(table.seconds(32, 128)) < 2.0


def test_beyond_the_edge_of_the_table_its_last_cells_count() -> None:
    table = CostTable()
    table.observe(512, 1, 8.0)
    table.observe(1024, 1, 1.0)
    assert float(table.seconds(8192, 1)) == pytest.approx((CALL_TOKENS + 8192) / (CALL_TOKENS + 1024))


def test_what_batches_take_from_now_on_is_learnt_in_some_dozen_of_them() -> None:
    table = taught(by_token).table(LANE)
    for _ in range(40):
        table.observe(8, 64, 3 * by_token(8, 64))
    assert float(table.seconds(8, 64)) == pytest.approx(3 * by_token(8, 64), rel=0.02)
    assert float(table.seconds(32, 8)) == pytest.approx(by_token(32, 8), rel=1e-6)


def test_one_batch_that_was_held_up_changes_little() -> None:
    table = taught(by_token).table(LANE)
    table.observe(8, 64, 1000 * by_token(8, 64))
    assert float(table.seconds(8, 64)) == pytest.approx(MOST_SURPRISE**STEP * by_token(8, 64))


def test_what_was_learnt_while_the_machine_was_busy_is_put_right_by_a_few_batches() -> None:
    table = CostTable()
    table.observe(8, 64, 10 * by_token(8, 64))
    for _ in range(5):
        table.observe(8, 64, by_token(8, 64))
    assert float(table.seconds(8, 64)) < 1.1 * by_token(8, 64)


def test_a_batch_that_took_no_time_by_the_clock_teaches_nothing() -> None:
    table = CostTable()
    table.observe(8, 64, 0.0)
    assert not table


def test_without_knowledge_batches_are_full_and_of_similar_length() -> None:
    assert chosen(Cost(), [100, 5, 90, 6, 95, 7], max_rows=3) == [100, 95, 90]
    assert len(chosen(Cost(), [10] * 50)) == 32
    assert Cost().enough(rows_of([10])[0], BatchLimits(32)) == 32


def test_a_device_that_takes_the_same_for_many_gets_full_batches_whatever_their_lengths() -> None:
    scheduler = taught(by_call)
    assert len(chosen(scheduler, [100, 5, 90, 6, 95, 7, 120, 8], max_rows=6)) == 6
    assert scheduler.enough(rows_of([10])[0], BatchLimits(32)) == 32


def test_a_model_to_which_only_tokens_matter_gets_rows_of_one_length() -> None:
    scheduler = taught(by_token)
    assert chosen(scheduler, [100, 5, 99, 6, 100, 7, 100, 8]) == [100, 100, 100, 99]
    assert chosen(scheduler, [6, 120, 6, 120, 6]) == [6, 6, 6]
    assert scheduler.enough(rows_of([10])[0], BatchLimits(32)) == 1


def test_a_processor_with_a_cache_gets_batches_that_fit_it() -> None:
    scheduler = taught(by_cache)
    assert 2 <= len(chosen(scheduler, [128] * 40)) <= 5
    assert 24 <= len(chosen(scheduler, [16] * 40)) <= 32
    assert 2 <= scheduler.enough(rows_of([128])[0], BatchLimits(32)) <= 5


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=80),
    st.integers(1, 100),
    st.none() | st.integers(1, 1500),
    st.sampled_from([by_call, by_token, by_cache, None]),
    st.integers(0, 2 * PROBE_EVERY),
)
def test_every_batch_is_allowed_and_holds_the_row_whose_turn_it_is(
    lengths: list[int], size: int, budget: int | None, takes: Takes | None, earlier: int
) -> None:
    scheduler = Cost() if takes is None else taught(takes)
    limits = BatchLimits(size, budget)
    scheduler._batches = earlier
    positions = scheduler.select(rows_of(lengths), limits, 0)
    batch_lengths = [lengths[position] for position in positions]
    assert 0 in positions
    assert len(set(positions)) == len(positions)
    assert limits.fits(len(positions), max(batch_lengths))
    assert batch_lengths == sorted(batch_lengths, reverse=True)


@pytest.mark.parametrize("takes", [by_call, by_token, by_cache])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_a_row_with_so_many_in_front_of_it_leaves_after_no_more_batches_than_that(takes: Takes, share: float) -> None:
    rng = random.Random(1)
    coming = [rng.randint(5, 15) if rng.random() < share else rng.randint(80, 128) for _ in range(1000)]
    scheduler, batches = taught(takes), 0
    waiting: list[tuple[Row, int, int]] = []  # row, rows in front and batches that had left at its arrival
    while coming or waiting:
        while coming and len(waiting) < 32:
            waiting.append((*rows_of([coming.pop()]), len(waiting), batches))
        taken = set(scheduler.select([row for row, _, _ in waiting], BatchLimits(8), 0))
        batches += 1
        for position in taken:
            _, in_front, before = waiting[position]
            assert batches - before <= in_front + 1
        waiting = [entry for position, entry in enumerate(waiting) if position not in taken]


def test_now_and_then_a_batch_is_half_or_twice_as_large_so_that_those_are_known_too() -> None:
    scheduler = taught(by_cache)
    sizes = [len(chosen(scheduler, [64] * 40)) for _ in range(4 * PROBE_EVERY)]
    usual = max(set(sizes), key=sizes.count)
    assert {size: sizes.count(size) for size in set(sizes)} == {
        usual: 4 * PROBE_EVERY - 4,
        usual // 2: 2,
        usual * 2: 2,
    }


def served_by(takes: Takes, count: int, **how: Any) -> Core:
    """`count` rows of 64 tokens that come a second apart, each when the one before it has long been answered."""
    core = Core(service_s=lambda call: takes(len(call.rows), 64), scheduler=Cost(), max_batch_size=8, **how)
    for number in range(count):
        core.submit_at(float(number), [number], lengths=[64])
    return core


def test_nobody_waits_for_company_that_makes_nothing_cheaper() -> None:
    core = served_by(by_token, 12, latency_s=0.3)
    for _ in range(3):
        for rows in SIZES[:4]:
            core.worker._scheduler.learn(LaneName(None), rows, 64, by_token(rows, 64))
    core.run()
    assert core.listener.reasons == [FlushReason.ENOUGH] * 12
    assert core.listener.waits_s == [0.0] * 12
    core.assert_at_rest()


def test_rows_wait_for_company_that_makes_them_cheaper_but_no_longer_than_the_latency() -> None:
    core = served_by(by_call, 4, latency_s=0.3)
    core.run()
    assert core.listener.reasons == [FlushReason.LATENCY] * 4
    assert core.listener.waits_s == pytest.approx([0.3] * 4)


def test_it_learns_from_live_batches_alone() -> None:
    rng = random.Random(2)

    def takes(call: Call) -> float:
        return by_token(len(call.rows), max(call.rows))

    scheduler = Cost()
    core = Core(service_s=takes, scheduler=scheduler, max_batch_size=32, latency_s=0.001)
    for number in range(600):
        length = rng.choice([8, 64])
        core.submit_at(number * 0.003, [length], lengths=[length])
    core.run()
    table = scheduler.table(LaneName(None))
    assert float(table.seconds(1, 64)) == pytest.approx(by_token(1, 64), rel=0.1)
    late = core.model.calls[-100:]
    assert sum(len(set(call.rows)) > 1 for call in late) <= 10, "short and long apart"
    core.assert_at_rest()


def test_what_is_enough_changes_with_what_is_learnt() -> None:
    scheduler, front, limits = taught(by_call), rows_of([64])[0], BatchLimits(32)
    assert scheduler.enough(front, limits) >= 30
    assert scheduler.enough(front, BatchLimits(8)) == 8
    (stranger,) = Ticket.of([None], [64], key="another lane", deadline=1.0).rows.values()
    for _ in range(60):
        for rows in SIZES:
            scheduler.learn(LANE, rows, 64, by_token(rows, 64))
    assert scheduler.enough(front, limits) == 1
    assert scheduler.enough(stranger, limits) == 32, "of which nothing is known"


@pytest.mark.parametrize(("takes", "least", "most"), [(by_cache, 6, 10), (by_call, 32, 32)])
def test_it_finds_the_best_size_by_itself_from_a_long_queue(takes: Takes, least: int, most: int) -> None:
    core = Core(
        service_s=lambda call: takes(len(call.rows), 64),
        scheduler=Cost(),
        max_batch_size=32,
        max_queue_size=20_000,
    )
    for number in range(8000):
        core.submit([number], lengths=[64])
    core.run()
    usual = sorted(core.model.sizes[-2 * PROBE_EVERY - 1 : -1])[PROBE_EVERY]
    assert least <= usual <= most


def test_a_batch_with_a_failure_in_it_teaches_nothing() -> None:
    def fail(call: Call) -> None:
        raise ValueError

    scheduler = Cost()
    core = Core(before=fail, service_s=0.5, scheduler=scheduler, latency_s=0.0)
    core.submit([1, 2, 3])
    core.run()
    assert not scheduler.table(LaneName(None))


class Confused(Cost):
    """Knows nothing, and says so."""

    def enough(self, front: Row, limits: BatchLimits) -> int:
        raise KeyError("enough")

    def learn(self, lane: LaneName, rows: int, length: int, seconds: float) -> None:
        raise KeyError("learn")


def test_a_scheduler_that_cannot_learn_costs_nobody_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    core = Core(scheduler=Confused(), max_batch_size=4, latency_s=0.5, service_s=0.1)
    tickets = [core.submit([number]) for number in range(6)]
    core.run()
    assert [core.outcome(ticket) for ticket in tickets] == [[number] for number in range(6)]
    assert core.listener.reasons == [FlushReason.SIZE, FlushReason.LATENCY]
    assert "whether rows are enough" in caplog.text


def test_of_many_lanes_only_the_latest_are_remembered_and_none_is_kept_alive() -> None:
    class Key:
        pass

    scheduler, key = Cost(), Key()
    gone = weakref.ref(key)
    scheduler.learn(LaneName(key), 1, 1, 1.0)
    del key
    gc.collect()
    assert gone() is None
    busy = scheduler.table(LaneName("busy"))
    for number in range(MOST_TABLES + 10):
        scheduler.learn(LaneName(number), 1, 1, 1.0)
        scheduler.learn(LaneName("busy"), 1, 1, 1.0)
    assert len(scheduler._tables) == MOST_TABLES
    assert scheduler.table(LaneName(MOST_TABLES + 9))
    assert scheduler.table(LaneName("busy")) is busy
    assert not scheduler.table(LaneName(0))


def test_it_tells_which_batches_are_best_for_each_length() -> None:
    best = {one.length: one for one in taught(by_cache).learnt(LANE)}
    assert list(best) == LENGTHS
    assert best[128].rows == 4
    assert best[128].seconds == pytest.approx(by_cache(4, 128))
    assert (best[128].smallest_rows, best[128].smallest_s) == (1, pytest.approx(by_cache(1, 128)))
    assert best[4].rows == 32
    assert Cost().learnt(LANE) == taught(by_cache).learnt(LaneName("another")) == []


def lengths_of(scheduler: Auto, lengths: Sequence[int]) -> list[int]:
    limits = BatchLimits(4)
    waiting = rows_of(lengths)[: scheduler.look_ahead(limits)]
    return [lengths[position] for position in scheduler.select(waiting, limits, 0)]


def test_by_default_texts_are_chosen_by_cost_and_rows_without_a_length_in_arrival_order() -> None:
    scheduler, limits = Auto(), BatchLimits(4)
    assert scheduler.look_ahead(limits) == 4
    assert lengths_of(scheduler, [1] * 9) == [1] * 4
    scheduler.learn(LANE, 4, 1, 0.1)
    assert scheduler.enough(rows_of([1])[0], limits) == 4
    assert scheduler.learnt(LANE) == []
    for rows in (1, 2, 4):
        for length in LENGTHS:
            scheduler.learn(LANE, rows, length, by_token(rows, length))
    assert scheduler.enough(rows_of([8])[0], limits) < 4
    assert lengths_of(scheduler, [8, 128, 128, 8, 128, 128, 8, 8]) == [8] * 4
    assert lengths_of(scheduler, [1] * 9) == [1] * 4
    assert {best.length for best in scheduler.learnt(LANE)} == set(LENGTHS)


def test_texts_are_noticed_that_come_before_anything_was_learnt() -> None:
    scheduler = Auto()
    assert lengths_of(scheduler, [8, 128]) == [128, 8]
    assert scheduler.look_ahead(BatchLimits(4)) == Cost().look_ahead(BatchLimits(4))


def test_it_is_known_by_its_name_and_as_one_that_learns() -> None:
    assert isinstance(make_scheduler("cost"), LearningScheduler)
    assert isinstance(make_scheduler("auto"), LearningScheduler)
    assert not isinstance(make_scheduler("grouped"), LearningScheduler)
    assert 0 < TOLERANCE < 0.1


def packed(scheduler: Cost, lengths: Sequence[int], max_rows: int = 32, max_tokens: int | None = None) -> list[int]:
    return scheduler.select(rows_of(lengths), BatchLimits(max_rows, max_tokens, packs=True), 0)


def test_packed_rows_leave_in_the_order_in_which_they_came() -> None:
    lengths = [60, 4, 128, 4, 8, 4, 4, 90]
    assert packed(taught(by_call), lengths) == list(range(8))
    assert packed(taught(by_token), lengths) == list(range(8))


def test_of_packed_batches_the_largest_leaves_that_costs_least_for_a_token() -> None:
    """512 tokens are best for that processor, however many rows they are in."""
    scheduler = taught(by_cache)
    for lengths in ([64] * 32, [128, 16] * 16, [16, 112] * 16):
        batch = packed(scheduler, lengths)
        assert 250 <= sum(lengths[position] for position in batch) <= 600


@pytest.mark.parametrize("packs", [True, False])
def test_of_batches_that_cost_the_same_the_largest_is_that_of_the_share(packs: bool) -> None:
    def size(takes: Takes, share: int | None) -> int:
        limits = BatchLimits(32, packs=packs, share=share)
        return len(taught(takes).select(rows_of([64] * 32), limits, 0))

    assert [size(by_token, share) for share in (None, 40, 16, 1)] == [32, 32, 16, 1]
    # What a smaller batch would make dearer is not shared.
    assert size(by_call, 16) >= 31
    assert size(by_cache, 1) >= 6


def test_packed_batches_stay_within_both_limits() -> None:
    scheduler = taught(by_call)
    assert packed(scheduler, [8] * 20, max_rows=6) == list(range(6))
    # The budget counts rows times the longest, whatever the model computes; a long row leaves when its turn comes.
    assert packed(scheduler, [10, 10, 30, 10, 20, 10], max_tokens=60) == [0, 1, 3, 5]
    assert packed(scheduler, [30, 10, 10, 10], max_tokens=60) == [0, 1]
    assert packed(scheduler, [100, 10], max_tokens=60) == [0]


def test_packed_batches_of_other_sizes_are_tried_as_well() -> None:
    scheduler = taught(by_cache)
    sizes = [len(packed(scheduler, [64] * 32)) for _ in range(2 * PROBE_EVERY)]
    usual = max(set(sizes), key=sizes.count)
    assert set(sizes) == {usual // 2, usual, usual * 2}
