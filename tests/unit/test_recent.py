"""What has happened lately is kept, and no more of it than was promised."""

from __future__ import annotations

import gc
import weakref

import pytest

from loaders.handle import ModelHandle
from service.batching.tickets import BatchInfo, FlushReason
from service.recent import KEPT_BATCHES, KEPT_LATENCIES, LATENCY_WINDOW_S, RecentBatches, RecentLatencies, percentile
from service.statistics import ModelStatistics

MODEL = ModelHandle.from_callable(len, name="m", version="2")


def batch(number: int) -> BatchInfo:
    return BatchInfo(number, 2, FlushReason.SIZE, 0.0, 0.25, runs=1, tokens=2, padded_length=1)


def test_the_last_batches_are_kept_oldest_first_and_no_others():
    recent = RecentBatches()
    for number in range(KEPT_BATCHES + 3):
        recent.add(MODEL, batch(number), [0.5, 2.0, 1.0], failed_rows=1)
    kept = recent.batches()
    assert [one.info.batch_id for one in kept] == list(range(3, KEPT_BATCHES + 3))
    assert (kept[0].model, kept[0].version, kept[0].longest_wait_s, kept[0].failed_rows) == ("m", "2", 2.0, 1)


def test_a_model_is_not_kept_in_memory_by_its_batches():
    class Weights:
        def __call__(self, rows):
            return rows

    weights = Weights()
    model = ModelHandle.from_callable(weights, name="m")
    recent = RecentBatches()
    recent.add(model, batch(1), [0.0], failed_rows=0)
    gone = weakref.ref(weights)
    del model, weights
    gc.collect()
    assert gone() is None
    assert len(recent.batches()) == 1


def test_the_uptime_is_told_by_the_clock_that_batches_are_told_by():
    now = 100.0
    recent = RecentBatches(clock=lambda: now)
    now = 102.5
    assert (recent.began_at, recent.uptime_s) == (100.0, 2.5)


def test_only_so_many_latencies_are_kept():
    latencies = RecentLatencies()
    for number in range(KEPT_LATENCIES + 1):
        latencies.add(1.0, float(number))
    assert latencies.since(0.0) == [float(number) for number in range(1, KEPT_LATENCIES + 1)]


def test_latencies_are_those_of_the_last_minute():
    now = 1000.0
    statistics = ModelStatistics(clock=lambda: now)
    statistics.request(0.5, 0, 0, 0, 0)
    now += LATENCY_WINDOW_S
    statistics.request(0.25, 0, 0, 0, 0)
    statistics.failed_request(9.0)
    assert statistics.recent_latencies_s() == [0.25]


@pytest.mark.parametrize(
    "values, percent, expected",
    [
        ([], 50, None),
        ([3.0], 1, 3.0),
        ([3.0], 99, 3.0),
        ([1.0, 2.0], 50, 1.0),
        ([1.0, 2.0], 51, 2.0),
        (list(range(1, 101)), 95, 95),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 21)), 95, 19),
    ],
)
def test_a_percentile_is_one_of_the_values(values, percent, expected):
    assert percentile(values, percent) == expected
