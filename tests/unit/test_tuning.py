"""From what batches cost to settings; every model here is a formula."""

from __future__ import annotations

import json
import math
import random
import statistics
from pathlib import Path

import orjson
import pytest

from service.batching.policy import BatchPolicy
from service.bench.errors import BenchUnavailable, NoReference
from service.settings import Settings
from service.tune.advice import HTTP_S, Advice, advise, threads_for
from service.tune.chart import draw
from service.tune.curve import Curve
from service.tune.env_file import merged
from service.tune.instances import configured, instances_lines
from service.tune.model import affordable, request_s
from service.tune.probe import measured_curve
from service.tune.report import advice_lines, as_data, curve_lines, remarks, resting_lines, text_lines
from service.tune.simulation import latencies_s

SIZES = (1, 2, 4, 8, 16, 32, 64)


def straight(base_ms: float, row_ms: float, sizes=SIZES) -> Curve:
    return Curve.of({size: (base_ms + row_ms * size) / 1000 for size in sizes})


def test_a_curve_tells_first_row_further_rows_and_plateau():
    curve = straight(5, 0.3)
    assert curve.t1_s == pytest.approx(0.0053)
    assert curve.marginal_s == pytest.approx(0.0003)
    assert curve.batch_s(3) == pytest.approx(0.0059)
    assert curve.batch_s(128) == pytest.approx(2 * curve.batch_s(64))
    assert curve.plateau == 64
    assert curve.gain > 10


def test_where_a_row_costs_the_same_in_any_batch_the_plateau_begins_at_one():
    curve = straight(0, 2)
    assert (curve.plateau, curve.gain) == (1, 1)
    assert any("hardly pays" in line for line in curve_lines(curve))
    assert not any("hardly pays" in line for line in curve_lines(straight(5, 0.3)))


def test_a_single_size_tells_no_slope():
    curve = Curve.of({4: 0.1})
    assert math.isnan(curve.marginal_s)
    assert curve.batch_s(2) == 0.1
    assert any("not known" in line for line in curve_lines(curve))


def test_a_worker_that_is_never_busy_makes_nobody_wait():
    assert latencies_s(lambda rows: 0.01 * rows, 8, rate_per_s=0.001) == pytest.approx([0.01] * 5000)


def test_waits_grow_with_the_load_as_queueing_theory_says():
    """One row at a time, always as long: the mean wait is u / (2 (1 - u)) services (Pollaczek and Khinchine)."""
    for load in (0.3, 0.7):
        took = latencies_s(lambda _: 1.0, 1, rate_per_s=load, requests=60_000)
        assert statistics.mean(took) - 1 == pytest.approx(load / (2 * (1 - load)), rel=0.1)


@pytest.mark.parametrize(("base_ms", "row_ms", "slo_ms"), [(0.1, 0.01, 5), (20, 0.1, 100), (1, 5, 30), (20, 5, 20)])
def test_advice_is_expected_to_keep_the_latency_unless_it_says_otherwise(base_ms, row_ms, slo_ms):
    curve = straight(base_ms, row_ms, sizes=(1, 8, 64))
    advice = advise(curve, slo_ms, request_s=0.0005)
    assert advice.max_batch_size in curve.sizes
    assert advice.keeps_slo == (base_ms + row_ms < 0.5 * slo_ms)
    assert not advice.keeps_slo or advice.p99_ms <= slo_ms
    assert advice.max_batch_latency_ms <= slo_ms
    Settings(model_path="m", **{name.lower(): value for name, value in advice.settings().items()})


def test_a_longer_latency_allows_more_load_and_larger_batches():
    curve = straight(10, 1)
    strict, lax = advise(curve, 60, 0.0), advise(curve, 400, 0.0)
    assert strict.max_batch_size < lax.max_batch_size
    assert strict.requests_per_s < lax.requests_per_s
    assert advise(straight(0, 10), 500, 0.0).max_batch_size == 1


def test_costs_that_fall_or_stay_are_not_told_as_negative_ones():
    for curve in (straight(10, -0.05), straight(10, 0)):
        assert any("further rows nothing that could be measured" in line for line in curve_lines(curve))
        assert advise(curve, 100, 0.0).max_batch_size == 64
    assert not any("nothing that" in line for line in curve_lines(straight(10, 1)))


def test_the_largest_size_that_was_measured_is_not_called_the_end_of_the_gain():
    assert any("larger batches bring more" in line for line in curve_lines(straight(10, 0)))
    assert any("from 1 rows on, larger batches bring next to nothing" in line for line in curve_lines(straight(0, 1)))


def test_a_model_that_takes_no_time_that_can_be_measured_divides_nothing_by_zero():
    curve = Curve.of({1: 0.0, 8: 0.0})
    assert curve.gain == 8
    assert advise(curve, 50, 0.0005).keeps_slo


def test_where_http_limits_the_rate_batches_have_room_for_what_comes_at_once():
    assert advise(straight(0.5, 0.005), 50, request_s=0.001).max_batch_size >= 32


def test_no_row_waits_for_company_longer_than_a_batch_of_one_takes():
    assert advise(straight(3, 0.1), 1000, 0.0).max_batch_latency_ms == pytest.approx(3.1)
    assert advise(straight(30, 1), 66, 0.0).max_batch_latency_ms < 5


def test_what_cannot_be_kept_is_said():
    advice = advise(straight(100, 1), 50, 0.0)
    assert (advice.keeps_slo, advice.max_batch_size) == (False, 1)
    assert any("No settings" in line for line in advice_lines(advice, 50))


def test_there_are_threads_for_all_requests_that_are_inside_at_a_time():
    assert threads_for(32, 10, 10) == Settings(model_path="m").http_threads
    assert threads_for(32, 1000, 500) >= 500


def test_there_are_threads_for_several_instances_and_it_is_said_that_one_is_reckoned_with(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MODEL_INSTANCES", raising=False)
    assert configured() == 1
    (tmp_path / ".env").write_text("MODEL_INSTANCES=3\n")
    assert configured() == 3
    monkeypatch.setenv("MODEL_INSTANCES", "2")
    assert configured() == 2
    one, two = (advise(straight(10, 0.1), 400, 0.0, instances) for instances in (1, 2))
    needed = Settings(model_path="m", max_batch_size=two.max_batch_size, model_instances=2).http_threads
    assert one.threads < needed <= two.threads
    assert list(instances_lines(1, will_check=True)) == []
    reckoned, checked = instances_lines(2, will_check=True)
    assert reckoned.startswith("MODEL_INSTANCES=2: what is expected is reckoned for one worker thread")
    assert checked == "The check runs all 2 of them."
    assert list(instances_lines(2, will_check=False))[1].startswith("Only a load")


def test_advice_from_a_running_service_says_what_it_rests_on():
    batches = {1: 500, 4: 1, 8: 20, **dict.fromkeys(range(9, 18), 15)}
    assert list(resting_lines(Advice(8, 1.0, BatchPolicy.EAGER, 72, 10.0, 5.0), batches, 16)) == [
        "MAX_BATCH_SIZE=8 rests on 20 batches of 8 rows.",
        "Left out are sizes that ran fewer than 16 times: 4 (1), 9 (15), 10 (15), 11 (15), 12 (15), 13 (15), 14 (15), "
        "15 (15) and 2 more.",
        "Larger batches than 8 may be better: `jitney tune MODEL` measures them.",
    ]
    assert list(resting_lines(Advice(1, 1.0, BatchPolicy.EAGER, 72, 10.0, 5.0), {1: 500, 8: 20}, 16)) == [
        "MAX_BATCH_SIZE=1 rests on 500 batches of 1 row."
    ]


ADVICE = Advice(16, 2.5, BatchPolicy.EAGER, 72, 300.0, 31.0)


def test_the_env_file_is_one_that_the_service_reads(tmp_path):
    from service.settings import read_dotenv

    (tmp_path / ".env").write_text(merged("", ADVICE.settings(), remarks(ADVICE, 50, ())))
    environ: dict[str, str] = {}
    assert read_dotenv(tmp_path / ".env", environ) == []
    assert environ == {
        "MAX_BATCH_SIZE": "16",
        "MAX_BATCH_LATENCY_MS": "2.5",
        "BATCH_POLICY": "eager",
        "THREADS": "72",
    }


def test_an_env_file_keeps_all_that_is_not_advised(tmp_path):
    from service.settings import read_dotenv

    own = "# ours\nMODEL_PATH=/models/a b\nMAX_BATCH_SIZE_OLD=1\nAPI_KEYS='x'\n"
    existing = f"{own}MAX_BATCH_SIZE=5\n export  THREADS = 9"
    once = merged(existing, ADVICE.settings(), remarks(ADVICE, 50, ()))
    assert merged(once, ADVICE.settings(), remarks(ADVICE, 50, ())) == once
    (tmp_path / ".env").write_text(once)
    environ: dict[str, str] = {}
    read_dotenv(tmp_path / ".env", environ)
    assert environ == {"MODEL_PATH": "/models/a b", "API_KEYS": "x", "MAX_BATCH_SIZE_OLD": "1", **ADVICE.settings()}
    assert once.startswith("# ours\n")
    assert "p99 of 50 ms" in once


def test_an_env_file_says_of_settings_that_keep_nothing_that_they_do_not():
    hopeless = Advice(1, 0.0, BatchPolicy.EAGER, 72, 0.25, 31.0, keeps_slo=False)
    told = merged("", hopeless.settings(), remarks(hopeless, 5, ()))
    assert "no settings are expected to keep" in told
    assert "at 0.25 requests/s" in told


def test_the_report_is_strict_json():
    for curve in (straight(5, 0.3), Curve.of({4: 0.1})):
        assert json.loads(json.dumps(as_data(curve, ADVICE, 50, ()), allow_nan=False))["settings"] == ADVICE.settings()


def test_texts_have_a_line_for_each_length():
    assert list(text_lines({})) == []
    lines = list(text_lines({5: straight(1, 1, (1, 8)), 80: straight(2, 2, (1, 8))}))
    assert lines[1].split() == ["5", "2.000", "9.000"]
    assert len(lines) == 3


def test_the_chart_names_its_axes_and_their_units(tmp_path: Path, monkeypatch):
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")
    draw(straight(5, 0.3), ADVICE, "What batches cost", tmp_path / "chart.svg")
    text = (tmp_path / "chart.svg").read_text()
    for shown in ("rows per batch", "ms", "rows per second", "MAX_BATCH_SIZE=16", "What batches cost"):
        assert shown in text


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(BenchUnavailable, match=r"jitney\[bench\]"):
        draw(straight(5, 0.3), ADVICE, "", tmp_path / "chart.svg")


class Server:
    """Takes 10 ms a batch and 1 ms a row, but ten times that in the first two rounds; splits what has over 8 rows."""

    def __init__(self) -> None:
        self.now = 0.0
        self._rounds = 0

    def clock(self) -> float:
        return self.now

    def __call__(self, body):
        rows = body.rows
        self._rounds += rows == 1
        time_ms = (10 + rows) * (10 if self._rounds <= 2 else 1)
        self.now += time_ms / 1000
        if rows == 4:
            return "500", b""
        entry = {"batch_size": min(rows, 8), "model_ms": time_ms}
        return "200", orjson.dumps({"batch": [entry] * rows})


def probe(server: Server, sizes) -> Curve:
    told: list[float] = []
    curve = measured_curve(
        [1, 2], server, sizes=sizes, limit_s=0.4, rng=random.Random(0), progress=told.append, clock=server.clock
    )
    assert told[-1] == 1.0
    return curve


def test_batches_are_measured_without_the_first_ones_and_without_what_was_no_batch():
    assert probe(Server(), (1, 2, 4, 8, 16)).points == ((1, 0.011), (2, 0.012), (8, 0.018))


def test_a_server_that_runs_nothing_as_a_batch_cannot_be_measured():
    with pytest.raises(NoReference):
        probe(Server(), (16,))


class Fragile:
    """Takes 1 s a row; more than `survives` rows at once it does not live through, and is away for three questions."""

    def __init__(self, survives: int) -> None:
        self.now = 0.0
        self.asked: list[int] = []
        self._survives = survives
        self._away = 0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self, body):
        self.asked.append(body.rows)
        if self._away:
            self._away -= 1
            return "refused", b""
        self.now += body.rows
        if body.rows > self._survives:
            self._away = 3
            return "connection lost", b""
        return "200", orjson.dumps({"batch": [{"batch_size": body.rows, "model_ms": 1000 * body.rows}] * body.rows})


def curve_of(server: Fragile, limit_s: float) -> Curve:
    return measured_curve(
        [1, 2],
        server,
        limit_s=limit_s,
        rng=random.Random(0),
        progress=lambda _: None,
        clock=server.clock,
        sleep=server.sleep,
    )


def test_what_a_server_does_not_survive_is_asked_once_and_not_taken_for_the_end():
    server = Fragile(survives=8)
    assert curve_of(server, limit_s=1000).sizes == [1, 2, 4, 8]
    assert server.asked.count(16) == 1
    assert max(server.asked) == 16


def test_a_server_that_does_not_come_back_is_given_up():
    server = Fragile(survives=0)
    with pytest.raises(NoReference, match="after 1 rows at once the server has not answered"):
        curve_of(server, limit_s=10)


def test_a_slow_model_is_measured_as_far_as_there_is_time_and_at_least_once():
    server = Fragile(survives=64)
    assert curve_of(server, limit_s=10).sizes == [1, 2, 4, 8]
    assert server.now < 100
    slowest = Fragile(survives=64)
    assert curve_of(slowest, limit_s=0.1).points == ((1, 1.0),)
    assert slowest.now == 3.0


def test_of_a_slow_model_no_more_is_asked_than_there_is_time_for():
    slow, quick = Curve.of({1: 2.0, 64: 128.0}), Curve.of({1: 0.001})
    assert list(affordable([1, 2, 3, 4], slow, limit_s=10)) == [1, 2]
    assert list(affordable([1, 2, 3, 4], slow, limit_s=1)) == [1]
    assert list(affordable([1, 2, 3, 4], quick, limit_s=10)) == [1, 2, 3, 4]


def test_what_a_request_costs_beside_a_slow_model_is_not_measured():
    class NeverAsked:
        """Has nothing that a client has."""

    slow = Curve.of({1: 2.0, 64: 128.0})
    assert request_s(NeverAsked(), [], slow, lambda _message, _fraction: None) == HTTP_S
