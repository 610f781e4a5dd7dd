"""What the schedulers save in tokens, and how long they may make a row wait."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core import Core

from service.batching.grouped import AGE_BOUND, Grouped
from service.batching.policy import BatchLimits
from service.batching.schedulers import (
    _FACTORIES,
    Fifo,
    LengthAware,
    NoScheduler,
    Scheduler,
    make_scheduler,
    register_scheduler,
    scheduler_names,
)
from service.batching.tickets import Row, Ticket

# Ten come no nearer to the published figures than four do.
SEEDS = range(4)

# Share of short texts -> tokens saved against arrival order, per cent, at batch 8, 16 and 32: the published figures
# for sorting a standing backlog of 1,000 texts (short ones of 5 to 15 tokens, long ones of 80 to 128) by length.
PUBLISHED = {
    0.1: (22.9, 24.0, 24.1),
    0.3: (37.2, 38.5, 38.8),
    0.5: (51.1, 53.6, 54.0),
    0.7: (63.4, 67.9, 69.2),
    0.9: (70.1, 78.7, 82.9),
}
CASES = [(share, size, saved) for share, row in PUBLISHED.items() for size, saved in zip((8, 16, 32), row, strict=True)]


def texts(count: int, share_of_short: float, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randint(5, 15) if rng.random() < share_of_short else rng.randint(80, 128) for _ in range(count)]


def rows_of(lengths: Sequence[int]) -> list[Row]:
    ticket = Ticket.of([None] * len(lengths), lengths, key=None, enqueued_at=0.0, deadline=1.0)
    return list(ticket.rows.values())


class Served:
    """Serves a stream of lengths batch by batch, with at most `backlog` rows waiting at a time."""

    def __init__(self, scheduler: Scheduler, lengths: Sequence[int], limits: BatchLimits, backlog: int) -> None:
        self.cost = 0
        self.batches: list[list[int]] = []
        self.waited: list[tuple[int, int]] = []  # rows in front at arrival, batches until served
        coming = rows_of(lengths)[::-1]
        waiting: list[tuple[Row, int, int]] = []  # row, rows in front, batches that had left, at arrival
        passes = 0
        while coming or waiting:
            while coming and len(waiting) < backlog:
                waiting.append((coming.pop(), len(waiting), len(self.batches)))
            view = waiting[: scheduler.look_ahead(limits)]
            chosen = scheduler.select([row for row, _, _ in view], limits, passes)
            taken = set(chosen)
            assert len(taken) == len(chosen) >= 1
            batch = [view[position] for position in chosen]
            longest = max(row.length for row, _, _ in batch)
            assert limits.fits(len(batch), longest)
            self.batches.append([row.length for row, _, _ in batch])
            self.cost += len(batch) * longest
            self.waited += [(in_front, len(self.batches) - before) for _, in_front, before in batch]
            passes = 0 if 0 in taken else passes + 1
            waiting = [row for position, row in enumerate(waiting) if position not in taken]


def saved_percent(scheduler: Callable[[], Scheduler], share: float, size: int, backlog: int) -> float:
    def saved(seed: int) -> float:
        lengths = texts(1000, share, seed)
        limits = BatchLimits(size)
        fifo = Served(Fifo(), lengths, limits, backlog=1000).cost
        return 100 * (1 - Served(scheduler(), lengths, limits, backlog).cost / fifo)

    return mean(saved(seed) for seed in SEEDS)


@pytest.mark.parametrize(("share", "size", "published"), CASES)
def test_grouped_saves_what_sorting_a_standing_backlog_saves(share: float, size: int, published: float) -> None:
    assert saved_percent(Grouped, share, size, backlog=1000) == pytest.approx(published, abs=2.0)


@pytest.mark.parametrize(("share", "size", "published"), CASES)
def test_grouped_saves_most_of_that_when_only_four_batches_wait_at_a_time(
    share: float, size: int, published: float
) -> None:
    assert saved_percent(Grouped, share, size, backlog=4 * size) >= 0.7 * published


def test_length_aware_changes_the_order_inside_a_batch_and_not_its_cost() -> None:
    assert saved_percent(LengthAware, 0.5, 16, backlog=1000) == 0
    (batch,) = Served(LengthAware(), [3, 9, 9, 1], BatchLimits(8), backlog=8).batches
    assert batch == [9, 9, 3, 1]


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_under_grouped_no_row_waits_beyond_the_documented_bound(share: float) -> None:
    served = Served(Grouped(), texts(3000, share, seed=1), BatchLimits(8), backlog=32)
    assert all(batches <= (in_front + 1) * (AGE_BOUND + 1) for in_front, batches in served.waited)


def test_grouped_does_not_leave_a_lone_long_row_behind_for_ever() -> None:
    limits = BatchLimits(4)
    rows = rows_of([128] + [10] * 30)
    assert 0 not in Grouped().select(rows, limits, passes=AGE_BOUND - 1)
    assert 0 in Grouped().select(rows, limits, passes=AGE_BOUND)


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=60),
    st.integers(1, 16),
    st.none() | st.integers(1, 1500),
    st.integers(0, 2 * AGE_BOUND),
)
def test_grouped_always_makes_a_batch_that_is_allowed_and_as_full_as_it_can_be(
    lengths: list[int], size: int, budget: int | None, passes: int
) -> None:
    limits = BatchLimits(size, budget)
    chosen = Grouped().select(rows_of(lengths), limits, passes)
    batch = [lengths[position] for position in chosen]
    assert len(set(chosen)) == len(chosen) >= 1
    assert limits.fits(len(batch), max(batch))
    assert batch == sorted(batch, reverse=True)
    if budget is None:
        assert len(batch) == min(size, len(lengths))
    if passes >= AGE_BOUND:
        assert 0 in chosen


def test_fifo_stops_before_the_row_that_would_break_the_token_budget() -> None:
    limits = BatchLimits(8, max_tokens=40)
    assert Fifo().select(rows_of([10, 10, 10, 15, 1]), limits, passes=0) == [0, 1, 2]
    assert Fifo().select(rows_of([10, 10, 10, 10, 1]), limits, passes=0) == [0, 1, 2, 3]


@pytest.mark.parametrize("scheduler", [Fifo(), LengthAware(), Grouped()])
def test_a_row_longer_than_the_whole_budget_runs_alone(scheduler: Scheduler) -> None:
    limits = BatchLimits(8, max_tokens=40)
    assert scheduler.select(rows_of([100, 5, 5]), limits, passes=AGE_BOUND) == [0]


def test_a_scheduler_of_ones_own_is_known_by_its_name() -> None:
    class Newest(Fifo):
        pass

    register_scheduler("newest", Newest)
    try:
        assert isinstance(make_scheduler("newest"), Newest)
        with pytest.raises(NoScheduler, match=r"unknown scheduler 'oldest'; known: .*newest"):
            make_scheduler("oldest")
    finally:
        _FACTORIES.pop("newest")


def test_a_plug_in_package_brings_a_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "plug_in-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-in\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        "[jitney.schedulers]\nplugged = plug_in_with_scheduler:Plugged\nbroken = plug_in_with_scheduler:Missing\n"
    )
    (tmp_path / "plug_in_with_scheduler.py").write_text(
        "from service.batching.schedulers import Fifo\nclass Plugged(Fifo):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert {"plugged", "fifo"} <= set(scheduler_names())
    assert type(make_scheduler("plugged")).__name__ == "Plugged"
    with pytest.raises(NoScheduler, match="plug-in 'plug_in_with_scheduler:Missing' for scheduler 'broken' failed"):
        make_scheduler("broken")


def test_the_example_of_the_guide_works_as_it_stands_and_keeps_every_limit() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "schedulers.md").read_text()
    source = guide.partition("```python\n")[2].partition("```")[0]
    try:
        exec(compile(source, "docs/schedulers.md", "exec"), {"__name__": "guide"})
        scheduler = make_scheduler("newest_first")
    finally:
        _FACTORIES.pop("newest_first", None)
    core = Core(max_batch_size=4, max_batch_tokens=20, latency_s=1.0, scheduler=scheduler)
    tickets = [core.submit([number], lengths=[1 + 7 * number % 25]) for number in range(60)]
    core.run()
    assert [core.outcome(ticket) for ticket in tickets] == [[number] for number in range(60)]
    assert core.model.calls[0].rows[0] == 59
    assert all(info.size == 1 or info.size * info.padded_length <= 20 for info in core.listener.batches)
    assert max(core.model.sizes) <= 4
    core.assert_at_rest()
