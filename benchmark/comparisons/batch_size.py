"""MAX_BATCH_SIZE from 1 to 64."""

from __future__ import annotations

from charts import figure_of, lines, powers_of_two, series
from matplotlib.figure import Figure
from trials import Row, serving

from comparisons.scale import Scale

NAME = "batch_size_comparison"
TITLE = "MAX_BATCH_SIZE, 64 callers in a closed loop"

CALLERS = 64
MODELS = ("dense", "decomposition")


def measure(scale: Scale) -> list[Row]:
    rows = []
    for model in MODELS:
        for size in scale.sizes:
            with serving(model, f"{size} rows", scale.duration_s, max_batch_size=size, batch_policy="eager") as trial:
                rows.append(trial.closed(CALLERS, size))
    return rows


def draw(rows: list[Row]) -> Figure:
    figure, panels = figure_of(TITLE, 3)
    for axes, what, label in zip(
        panels,
        ("requests_per_s", "p99_ms", "cpu_ms_per_request"),
        ("throughput, requests/s", "p99 latency, ms", "server CPU per request, ms"),
        strict=True,
    ):
        lines(axes, series(rows, "model", what), "MAX_BATCH_SIZE, rows", label)
        powers_of_two(axes, sorted({row.x for row in rows}))
    return figure


def says(rows: list[Row]) -> str:
    told = []
    for model in MODELS:
        own = [row for row in rows if row.model == model]
        best = max(own, key=lambda row: row.requests_per_s)
        told.append(
            f"{model} does most with {best.x:.0f} rows, {best.requests_per_s / own[0].requests_per_s:.2f} times as "
            f"much as with {own[0].x:.0f} (p99 {best.p99_ms:.0f} against {own[0].p99_ms:.0f} ms)"
        )
    return "; ".join(told) + "."
