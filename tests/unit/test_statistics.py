from __future__ import annotations

from service.batching.tickets import BatchInfo, FlushReason
from service.http.v2.statistics import model_stats
from service.statistics import ModelStatistics, Total

AT_S = 1_700_000_000.125


def batch(size: int, model_s: float) -> BatchInfo:
    return BatchInfo(1, size, FlushReason.SIZE, 0.0, model_s, runs=1, tokens=size, padded_length=1)


def filled() -> ModelStatistics:
    statistics = ModelStatistics(clock=lambda: AT_S)
    statistics.batch(batch(4, 0.5))
    statistics.batch(batch(1, 0.125))
    statistics.batch(batch(4, 0.25), failed_rows=1)
    statistics.request(1.0, queue_s=0.25, prepare_s=0.125, model_s=0.5, present_s=0.0625)
    statistics.request(2.0, queue_s=0.25, prepare_s=0.125, model_s=0.5, present_s=0.0625)
    statistics.failed_request(0.5)
    return statistics


def test_rows_and_batches_are_counted_by_the_batch():
    totals = filled().totals()
    assert (totals.rows, totals.batches) == (8, 3)
    assert totals.batch_model == {1: Total(1, 0.125), 4: Total(2, 0.75)}


def test_a_batch_that_failed_as_a_whole_answered_nothing():
    statistics = ModelStatistics()
    statistics.batch(batch(2, 0.5), failed_rows=2)
    totals = statistics.totals()
    assert (totals.rows, totals.batches, totals.batch_model) == (0, 0, {})


def test_requests_are_counted_by_how_they_ended_with_the_parts_of_their_time():
    totals = filled().totals()
    assert (totals.succeeded, totals.failed) == (Total(2, 3.0), Total(1, 0.5))
    assert (totals.queued, totals.prepared) == (Total(2, 0.5), Total(2, 0.25))
    assert (totals.in_model, totals.presented) == (Total(2, 1.0), Total(2, 0.125))
    assert totals.last_at_s == AT_S


def test_totals_that_were_given_out_do_not_change():
    statistics = filled()
    before = statistics.totals()
    statistics.batch(batch(4, 1.0))
    assert before.batch_model[4] == Total(2, 0.75)


def test_the_protocol_has_them_in_nanoseconds():
    stats = model_stats("m", "2", filled().totals())
    assert (stats["name"], stats["version"], stats["last_inference"]) == ("m", "2", 1_700_000_000_125)
    assert (stats["inference_count"], stats["execution_count"]) == (8, 3)
    nothing = {"count": 0, "ns": 0}
    assert stats["inference_stats"] == {
        "success": {"count": 2, "ns": 3_000_000_000},
        "fail": {"count": 1, "ns": 500_000_000},
        "queue": {"count": 2, "ns": 500_000_000},
        "compute_input": {"count": 2, "ns": 250_000_000},
        "compute_infer": {"count": 2, "ns": 1_000_000_000},
        "compute_output": {"count": 2, "ns": 125_000_000},
        "cache_hit": nothing,
        "cache_miss": nothing,
    }
    assert [entry["batch_size"] for entry in stats["batch_stats"]] == [1, 4]
    assert stats["batch_stats"][1]["compute_infer"] == {"count": 2, "ns": 750_000_000}
