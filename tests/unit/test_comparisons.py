"""The comparisons of `make bench`: what is drawn and said of figures that are made up here."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmark"


@pytest.fixture(autouse=True)
def found(monkeypatch):
    """They are programs, and import each other from their own directory."""
    monkeypatch.syspath_prepend(str(BENCHMARK))


def row(model="dense", variant="dynamic", load="64 callers", x=64.0, rate=100.0, p50=5.0, p99=9.0, **more):
    from trials import Row

    values = {
        "p95_ms": 8.0,
        "mean_batch_size": 4.0,
        "cpu_ms_per_request": 1.0,
        "padding_share": 0.2,
        "requests": 200,
        "errors": 0,
        "wrong_answers": 0,
    }
    return Row(model, variant, load, x, rate, p50, p99_ms=p99, **(values | more))


def made_up(name: str):
    """Rows as the comparison's own `measure` gives them."""
    if name == "batching":
        return [
            row(model, variant, x=callers, rate=100.0 * (3 if (model, variant) == ("dense", "dynamic") else 1))
            for model in ("dense", "decomposition")
            for variant in ("direct", "dynamic")
            for callers in (1, 64)
        ]
    if name == "strategy":
        return [
            row(variant=variant, x=load)
            for variant in ("dynamic", "static, 8 rows", "static, 32 rows")
            for load in (10.0, 40.0, 70.0)
        ]
    if name == "batch_size":
        return [row(model, x=size, rate=size) for model in ("dense", "decomposition") for size in (1, 4, 16, 64)]
    if name == "queue_wait":
        return [row(load=f"{callers} callers", x=wait) for wait in (0, 2, 50) for callers in (8, 64)]
    if name == "padding":
        return [row("transformer", variant, rate=rate) for variant, rate in PADDED.items()]
    return [row(variant=variant, x=load) for variant in ("eager", "window, 5 ms") for load in (10.0, 95.0)]


PADDED = {"dynamic": 200.0, "dynamic, grouped": 300.0, "dynamic, cost": 250.0, "fixed, 128 words": 100.0}

NAMES = ["batching", "strategy", "batch_size", "queue_wait", "padding", "policy"]


@pytest.mark.parametrize("name", NAMES)
def test_each_comparison_draws_labelled_axes_and_says_what_it_shows(name, tmp_path, monkeypatch):
    import importlib

    import matplotlib as mpl
    from charts import save

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")
    comparison = importlib.import_module(f"comparisons.{name}")
    figure = comparison.draw(made_up(name))
    figure.draw_without_rendering()
    for axes in figure.axes:
        unit_or_count = any(word in axes.get_ylabel() for word in ("ms", "/s", "rows", "%"))
        assert unit_or_count, axes.get_ylabel()
        assert axes.get_yscale() == "log" or axes.get_ylim()[0] == 0
        assert ("logarithmic" in axes.get_xlabel()) == (axes.get_xscale() == "log")
        assert ("logarithmic" in axes.get_ylabel()) == (axes.get_yscale() == "log")
        low, high = axes.get_ylim()
        assert all(low <= value <= high for line in axes.lines for value in line.get_ydata())
    save(figure, tmp_path / "chart.svg")
    assert comparison.TITLE in (tmp_path / "chart.svg").read_text()
    assert comparison.says(made_up(name)).endswith(".")
    assert "nan" not in comparison.says(made_up(name))


@pytest.mark.parametrize("name", NAMES)
def test_where_the_cpu_time_is_not_known_all_else_is_drawn_and_said(name):
    import importlib

    comparison = importlib.import_module(f"comparisons.{name}")
    rows = [replace(row, cpu_ms_per_request=math.nan, padding_share=0.5) for row in made_up(name)]
    comparison.draw(rows).draw_without_rendering()
    assert "nan" not in comparison.says(rows)


def said_of(rows, name: str) -> str:
    import importlib

    import compare_batching

    return compare_batching.said(importlib.import_module(f"comparisons.{name}"), rows)


@pytest.mark.parametrize("name", NAMES)
def test_of_a_load_without_answers_nothing_is_concluded(name):
    rows = made_up(name)
    dead = replace(rows[1], requests_per_s=0.0, p50_ms=math.nan, p95_ms=math.nan, p99_ms=math.nan, errors=9)
    told = said_of([rows[0], dead, *rows[2:]], name)
    assert told == f"Nothing follows from this: {dead.model}, {dead.variant}, {dead.load} had no answers."


@pytest.mark.parametrize("name", NAMES)
def test_failures_stand_before_what_is_concluded(name):
    rows = made_up(name)
    told = said_of([replace(rows[0], errors=3), *rows[1:]], name)
    assert told.startswith("Not all was answered rightly")
    assert "(3 errors)" in told
    assert said_of(rows, name) in told


def test_waiting_for_full_batches_is_not_praised_for_what_it_did_not_do():
    from comparisons import strategy

    rows = made_up("strategy")
    assert "took no less CPU time throughout, and no longer to answer throughout" in strategy.says(rows)
    better = [
        replace(row, p50_ms=50.0, cpu_ms_per_request=0.5) if row.variant == "static, 32 rows" else row for row in rows
    ]
    assert "took less CPU time, and longer to answer" in strategy.says(better)


def test_differences_that_are_noise_are_not_told_as_gains():
    from comparisons import batch_size, batching, queue_wait

    sizes = [row(model, x=size, rate=100 + size / 10) for model in ("dense", "decomposition") for size in (1, 64)]
    assert "dense does about as much with any size" in batch_size.says(sizes)
    waits = [row(load=f"{callers} callers", x=wait, rate=100 + wait) for wait in (0, 5) for callers in (8, 64)]
    assert "With 8 callers all give about as much" in queue_wait.says(waits)
    slightly = [replace(one, requests_per_s=95.0 if one.variant == "dynamic" else 100.0) for one in made_up("batching")]
    assert "does not pay" not in batching.says(slightly)


def test_the_wait_that_gives_least_is_told_wherever_it_stands():
    from comparisons import queue_wait

    rows = [
        row(load=f"{callers} callers", x=wait, rate=rate)
        for wait, rate in ((0, 50.0), (5, 100.0), (50, 90.0))
        for callers in (8, 64)
    ]
    assert "With 8 callers 5 ms gives most (100 requests/s), and 0 ms least, 0.50 times" in queue_wait.says(rows)


def test_the_document_names_the_command_that_was_run():
    import argparse

    import compare_batching

    def of(**given: object) -> str:
        return compare_batching.command_of(
            argparse.Namespace(**{"full": False, "only": None, "duration": None} | given)
        )

    assert of() == "make bench"
    assert of(full=True) == "make bench-full"
    assert of(only="policy_by_load", duration=0.5) == (
        "python benchmark/compare_batching.py --only policy_by_load --duration 0.5"
    )


def test_it_is_said_where_batching_does_not_pay():
    from comparisons import batching

    said = batching.says(made_up("batching"))
    assert "dense with 64 callers: batching pays, 3.00 times" in said
    assert "decomposition with 64 callers: batching makes no difference, 1.00 times" in said
    slower = [
        row(one.model, one.variant, x=one.x, rate=50.0 if one.variant == "dynamic" else 100.0)
        for one in made_up("batching")
    ]
    assert "dense with 1 caller: batching does not pay, 0.50 times" in batching.says(slower)


def test_it_is_said_where_a_window_beats_eager():
    from comparisons import policy

    assert "At no load" in policy.says(made_up("policy"))
    rows = [row(variant="eager", x=10.0, p50=5.0, p99=30.0), row(variant="window, 5 ms", x=10.0, p50=9.0, p99=20.0)]
    assert "p99 at 10 % (30.0 against 20.0 ms with window, 5 ms)" in policy.says(rows)
    assert "not their size alone" in policy.says(rows)


def test_a_reason_is_given_where_all_windows_that_beat_eager_share_it():
    from comparisons import policy

    eager = row(variant="eager", x=95.0, p99=30.0)
    larger = replace(row(variant="window, 5 ms", x=95.0, p99=20.0), mean_batch_size=2 * eager.mean_batch_size)
    cheaper = replace(larger, cpu_ms_per_request=0.9 * eager.cpu_ms_per_request)
    assert "batches are larger: near" in policy.says([eager, larger])
    assert "batches are larger, and at 95 % a request costs" in policy.says([eager, cheaper])
    smaller = replace(larger, variant="window, 9 ms", mean_batch_size=0.5 * eager.mean_batch_size)
    assert "batches are larger" not in policy.says([eager, cheaper, smaller])
    assert "not their size alone" in policy.says([eager, cheaper, smaller])


def test_the_document_has_figures_command_machine_and_faults():
    import compare_batching
    from comparisons import batching

    rows = [*made_up("batching"), row(errors=3, wrong_answers=1, cpu_ms_per_request=math.nan)]
    text = compare_batching.document([(batching, rows)], "make bench", "../benchmark/plots")
    assert "`make bench`, 20" in text
    assert "cores" in text
    assert "(../benchmark/plots/batching_comparison.svg)" in text
    assert "| dense | dynamic | 64 callers | 200 | 100 (3 errors, 1 wrong) | 5.00 | 8.00 | 9.00 | 4.0 | - |" in text
    assert "| - | 1.00 |" in "\n".join(compare_batching.table([row(mean_batch_size=math.nan)]))


def test_of_repeated_loads_each_figure_is_the_median_and_no_fault_is_lost():
    from trials import median_of

    rows = [row(p50=1.0, p99=9.0, errors=1), row(p50=2.0, p99=7.0), row(p50=50.0, p99=8.0, wrong_answers=2)]
    found = median_of(rows)
    assert (found.p50_ms, found.p99_ms, found.requests, found.errors, found.wrong_answers) == (2.0, 8.0, 600, 1, 2)


def test_a_csv_file_has_every_figure_and_leaves_unknown_ones_empty(tmp_path):
    from trials import write_csv

    write_csv([row(cpu_ms_per_request=math.nan, rate=1234.5678)], tmp_path / "rows.csv")
    (read,) = csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())
    assert (read["requests_per_s"], read["cpu_ms_per_request"], read["model"]) == ("1234.57", "", "dense")


@pytest.mark.parametrize("model", ["dense", "decomposition"])
def test_the_models_answer_a_row_alone_as_in_a_batch(model):
    import numpy as np
    from served_models import MODELS

    handle = MODELS[model]()
    rows = list(np.random.default_rng(1).random((5, 64), dtype=np.float32) * 10)
    assert handle.predict_batch(rows) == [handle.predict_batch([one])[0] for one in rows]


def test_texts_get_the_same_answer_however_they_are_padded(monkeypatch):
    from served_models import MODELS

    dynamic = MODELS["transformer"]()
    monkeypatch.setenv("PAD_TO_MULTIPLE_OF", "128")
    fixed = MODELS["transformer"]()
    rows = [dynamic.input.encode(text) for text in ("one", "a text of six words here", "word " * 60)]
    assert fixed.input.padded_length(5) == 128
    alone = [dynamic.predict_batch([one])[0] for one in rows]
    for batch in (dynamic.predict_batch(rows), fixed.predict_batch(rows)):
        assert batch == pytest.approx(alone, abs=1e-4)


@pytest.fixture(autouse=True)
def forgotten():
    """What was imported from there must not stand in the way of other programs' modules of the same names."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(BENCHMARK) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
