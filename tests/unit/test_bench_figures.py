"""From exchanges, scrapes and process tables to figures."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from loaders import ModelHandle
from service.batching.tickets import BatchInfo, FlushReason
from service.bench.answers import Reference, ask_alone, same
from service.bench.bodies import json_body
from service.bench.errors import NoReference
from service.bench.load import Exchange
from service.bench.measure import Measurement, ServerSide
from service.bench.pattern import Kind, Pattern
from service.bench.report import as_data, as_lines
from service.bench.result import Quantiles, result_of
from service.bench.scraped import Histogram, Scrape
from service.bench.server_cpu import cpu_times, cpu_times_of
from service.metrics.batches import BatchMetrics


def done(
    body: int = 0, due: float = 0.0, sent: float = 0.0, at: float = 1.0, outcome: str = "200", wrong: bool = False
):
    return Exchange(body, due, sent, at, outcome, wrong)


def test_quantiles_are_times_that_occurred():
    quantiles = Quantiles.of([number / 1000 for number in range(1, 101)])
    assert (quantiles.p50, quantiles.p95, quantiles.p99, quantiles.max) == (50, 95, 99, 100)
    assert Quantiles.of([0.002]) == Quantiles(2, 2, 2, 2, 2)
    assert math.isnan(Quantiles.of([]).p99)


def test_latency_counts_from_when_a_request_was_due_and_not_from_when_it_was_sent():
    result = result_of([done(due=0.5, sent=0.9, at=1.0)], [1], 1.0)
    assert result.latency_ms.max == pytest.approx(500)
    assert result.late_ms.max == pytest.approx(400)


def test_failures_are_counted_by_kind_and_are_no_throughput():
    exchanges = [done(0), done(1, wrong=True), done(1, outcome="429"), done(0, outcome="timeout", at=2.0)]
    result = result_of(exchanges, [1, 10], 2.0)
    assert (result.requests, result.rows, result.wrong_answers) == (4, 22, 1)
    assert result.errors == {"429": 1, "timeout": 1}
    assert (result.requests_per_s, result.rows_per_s) == (1.0, 5.5)


def test_a_straggler_does_not_make_the_others_slow():
    exchanges = [done(at=number / 10) for number in range(1, 11)] + [done(at=60.0)]
    result = result_of(exchanges, [2], 1.0)
    assert (result.requests_per_s, result.rows_per_s, result.lasted_s) == (10, 20, 60)


def test_where_no_answer_came_while_requests_were_due_throughput_goes_by_all():
    assert result_of([done(at=4.0), done(at=5.0)], [1], 1.0).requests_per_s == pytest.approx(0.4)


def test_without_any_request_there_is_no_figure():
    assert result_of([], [1], 1.0).requests_per_s == 0.0


@pytest.mark.parametrize(
    ("left", "right", "agree"),
    [
        ([1, "a"], [1, "a"], True),
        ([{"score": 0.5}], [{"score": 0.50001}], True),
        ([{"score": 0.5}], [{"score": 0.51}], False),
        ([1], [2], False),
        (["a"], ["b"], False),
        ([1.0, 2.0], [1.0], False),
        ({"a": 1.0}, {"b": 1.0}, False),
        ([20_000.0], [20_000.5], True),
        ([1], [1.00001], True),
        ([None], [0.0], False),
    ],
)
def test_answers_agree_within_the_tolerance(left, right, agree):
    assert same(left, right, 1e-4) is agree
    assert same(right, left, 1e-4) is agree


def test_a_reference_takes_what_is_no_answer_for_wrong():
    reference = Reference([[1], [2], [2]])
    assert reference.distinct == 2
    assert reference.agrees(1, b'{"predictions": [2]}')
    assert not reference.agrees(0, b'{"predictions": [2]}')
    assert not any(reference.agrees(0, content) for content in (b"", b"[]", b"{}", b"<html>"))


def test_a_body_that_fails_alone_is_told_with_the_reason_of_the_server():
    with pytest.raises(NoReference, match=r"body 1 of 1, asked alone, ended with 422: too few"):
        ask_alone([json_body({"text": "a"})], lambda _: ("422", b'{"detail": "too few"}'))
    with pytest.raises(NoReference, match="no predictions"):
        ask_alone([json_body({"text": "a"})], lambda _: ("200", b"{}"))


@pytest.mark.parametrize(("outcome", "said"), [("308", "redirects"), ("401", "--header"), ("connection lost", "https")])
def test_a_body_that_fails_alone_is_told_with_what_helps(outcome, said):
    with pytest.raises(NoReference, match=said):
        ask_alone([json_body({"text": "a"})], lambda _: (outcome, b""))


def test_a_model_that_answers_otherwise_each_time_is_not_said_to_answer_wrongly():
    numbers = iter(range(100))

    def ask(_):
        return "200", b'{"predictions": [%d]}' % next(numbers)

    reference = ask_alone([json_body({"text": "a"}), json_body({"text": "b"})], ask)
    assert not reference.is_steady
    assert reference.agrees(0, b'{"predictions": [77]}')
    assert not reference.agrees(0, b'{"predictions": [77, 78]}')
    assert ask_alone([json_body({"text": "a"})], lambda _: ("200", b'{"predictions": [1]}')).is_steady


def scrape(*batches: tuple[int, float, float]) -> Scrape:
    """As the server itself counts batches of (rows, wait of each row, time in the model)."""
    registry = CollectorRegistry()
    metrics = BatchMetrics(registry)
    model = ModelHandle.from_callable(lambda rows: rows, name="m")
    for size, wait_s, model_s in batches:
        info = BatchInfo(1, size, FlushReason.SIZE, 0.0, model_s=model_s, runs=1, tokens=3 * size, padded_length=4)
        metrics.batch(model, info, [wait_s] * size, ())
    return Scrape.parse(generate_latest(registry).decode())


def test_what_the_server_counts_is_read_back_from_its_metrics_page():
    counted = scrape((1, 0.002, 0.01), (3, 0.002, 0.03))
    assert counted.batch_size.mean == 2
    assert counted.queue_wait_s.mean == pytest.approx(0.002)
    assert 0.001 < counted.queue_wait_s.quantile(0.5) <= 0.0025
    assert counted.model_s.mean == pytest.approx(0.02)
    assert counted.padding_share == pytest.approx(0.25)


def test_the_figures_of_one_model_are_read_without_those_of_others():
    registry = CollectorRegistry()
    metrics = BatchMetrics(registry)
    for name, rows in (("a", 3), ("b", 5)):
        info = BatchInfo(1, rows, FlushReason.SIZE, 0.0, model_s=0.1, runs=1, tokens=rows, padded_length=1)
        metrics.batch(ModelHandle.from_callable(lambda rows: rows, name=name), info, [0.0] * rows, ())
    text = generate_latest(registry).decode()
    assert Scrape.parse(text, {"model": "a"}).batch_size.sum == 3
    assert Scrape.parse(text).batch_size.sum == 8
    assert Scrape.parse(text, {"model": "c"}).batch_size.count == 0


def test_the_difference_of_two_scrapes_is_what_happened_in_between():
    between = scrape((1, 0.0, 0.1), (9, 0.0, 0.2)) - scrape((1, 0.0, 0.1))
    assert (between.batch_size.count, between.batch_size.mean) == (1, 9)
    assert between.counters["inference_tokens_total"] == 27


def test_a_server_that_counts_anew_tells_nothing():
    once, twice = scrape((4, 0.0, 0.1)), scrape((4, 0.0, 0.1), (4, 0.0, 0.1))
    assert once.since(twice) is None
    between = twice.since(once)
    assert between is not None
    assert between.batch_size.count == 1


def test_a_histogram_of_nothing_has_no_quantiles_and_an_open_bucket_its_lower_bound():
    assert math.isnan(Histogram().quantile(0.5))
    assert math.isnan(Histogram().mean)
    assert Histogram({1.0: 1, math.inf: 9}, 99).quantile(0.99) == 1.0


def fake_process(
    proc: Path, pid: int, parent: int, ticks: int, socket: str | None = None, *, ended_ticks: int = 0
) -> None:
    fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", str(ended_ticks), *["0"] * 5, "77"]
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (a (very) odd name) {' '.join(fields)}")
    if socket is not None:
        (proc / str(pid) / "fd" / "3").symlink_to(socket)


def test_cpu_time_is_that_of_who_listens_and_of_its_children(tmp_path):
    (tmp_path / "net").mkdir()
    rows = [
        "header",
        "0: 0100007F:1F40 00000000:0000 0A 0:0 0:0 0 0 0 4711",
        "1: 0100007F:1F40 1:1 01 0:0 0:0 0 0 0 99",
    ]
    (tmp_path / "net" / "tcp").write_text("\n".join(rows))
    (tmp_path / "self").mkdir()
    fake_process(tmp_path, 10, 1, 100, "socket:[4711]")
    fake_process(tmp_path, 11, 10, 200, "socket:[4711]")
    fake_process(tmp_path, 12, 11, 400)
    fake_process(tmp_path, 13, 1, 800, "socket:[99]")
    times = cpu_times(8000, tmp_path)
    assert times is not None
    assert times.total_s == pytest.approx(700 / os.sysconf("SC_CLK_TCK"))
    assert times.since(times) == 0
    assert cpu_times(8001, tmp_path) is None
    assert cpu_times(8000, tmp_path / "none") is None


def listening(proc: Path) -> None:
    (proc / "net").mkdir(exist_ok=True)
    (proc / "net" / "tcp").write_text("header\n0: 0100007F:1F40 00000000:0000 0A 0:0 0:0 0 0 0 4711")


def test_a_worker_that_is_replaced_takes_its_time_along(tmp_path):
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    listening(tmp_path)
    fake_process(tmp_path, 10, 1, 100, "socket:[4711]")
    fake_process(tmp_path, 11, 10, 200, "socket:[4711]")
    before = cpu_times(8000, tmp_path)
    shutil.rmtree(tmp_path / "11")
    shutil.rmtree(tmp_path / "10")
    fake_process(tmp_path, 10, 1, 100, "socket:[4711]", ended_ticks=250)
    fake_process(tmp_path, 12, 10, 30, "socket:[4711]")
    after = cpu_times(8000, tmp_path)
    assert before is not None
    assert after is not None
    assert after.since(before) == pytest.approx(80 * tick_s)


def test_of_a_server_that_was_started_again_no_time_is_known(tmp_path):
    listening(tmp_path)
    fake_process(tmp_path, 10, 1, 100, "socket:[4711]")
    before = cpu_times(8000, tmp_path)
    shutil.rmtree(tmp_path / "10")
    fake_process(tmp_path, 20, 1, 5, "socket:[4711]")
    after = cpu_times(8000, tmp_path)
    assert before is not None
    assert after is not None
    assert after.since(before) is None


def test_cpu_time_of_processes_that_are_known_is_theirs_and_that_of_their_children(tmp_path):
    fake_process(tmp_path, 10, 1, 100)
    fake_process(tmp_path, 11, 10, 200)
    fake_process(tmp_path, 12, 11, 400)
    fake_process(tmp_path, 13, 1, 800)
    times = cpu_times_of({11}, tmp_path)
    assert times is not None
    assert {pid for pid, _ in times.processes} == {11, 12}
    assert cpu_times_of({99}, tmp_path) is None


def measurement(counted: Scrape | None, cpu_s: float | None, *exchanges: Exchange, distinct: int = 2) -> Measurement:
    pattern = Pattern(Kind.POISSON, 1.0, rate_per_s=10)
    return Measurement(pattern, result_of(exchanges, [1], 1.0), ServerSide(counted, cpu_s), distinct)


def test_a_report_has_every_figure_and_is_strict_json():
    told = as_data(measurement(scrape((4, 0.002, 0.01)), 0.5, done(), done(outcome="503")))
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["errors"] == {"503": 1}
    assert told["server"]["mean_batch_size"] == 4
    assert told["server"]["cpu_ms_per_request"] == 250
    text = "\n".join(as_lines(measurement(scrape((4, 0.002, 0.01)), 0.5, done(), done(outcome="503"))))
    for shown in ("p99 1000.00", "1 x 503", "4.00 rows on average", "250.000 ms per request", "25.0% of all tokens"):
        assert shown in text


def test_a_report_without_figures_says_so_and_invents_none():
    told = as_data(measurement(None, None))
    assert told["latency_ms"]["p50"] is None
    assert told["server"]["mean_batch_size"] is None
    assert "none" in "\n".join(as_lines(measurement(None, None)))


@pytest.mark.parametrize(
    ("doubtful", "said"),
    [
        (measurement(scrape(), 1.0, done(due=0, sent=0.9)), "sent late"),
        (measurement(scrape(), 1.0, done(), distinct=1), "same answer"),
        (measurement(None, 1.0, done()), "METRICS_KEY"),
        (measurement(scrape(), None, done()), "CPU time"),
        (measurement(scrape((4, 0.0, 0.1)), 1.0, done()), "others asked it"),
        (measurement(scrape(), 1.0, done(), done(outcome="429")), "50.0% of the requests failed"),
        (measurement(scrape(), 1.0, done()), "too few for a 99th percentile"),
        (replace(measurement(scrape(), 1.0, done()), has_steady_answers=False), "asked alone twice"),
    ],
)
def test_what_is_doubtful_is_said(doubtful, said):
    assert [doubt for doubt in as_data(doubtful)["doubts"] if said in doubt]
    assert said in "\n".join(as_lines(doubtful))


def test_where_nothing_is_doubtful_nothing_is_said():
    assert as_data(measurement(scrape(), 1.0, *[done()] * 100))["doubts"] == []


def test_what_the_clock_of_the_load_cannot_do_better_is_not_called_late():
    requests = [done(due=0.0, sent=0.001, at=0.0015)] * 100
    assert as_data(measurement(scrape(), 1.0, *requests))["doubts"] == []
