"""MAX_BATCH_SIZE from 1 to 64."""

from __future__ import annotations

from charts import line_charts, powers_of_two
from matplotlib.figure import Figure
from trials import NOISE, Row, serving

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
    figures = ("requests_per_s", "p99_ms", "cpu_ms_per_request")
    figure, panels = line_charts(TITLE, rows, by="model", xlabel="MAX_BATCH_SIZE, rows", figures=figures)
    for axes in panels.values():
        powers_of_two(axes, sorted({row.x for row in rows}))
    return figure


def says(rows: list[Row]) -> str:
    told = []
    for model in MODELS:
        own = [row for row in rows if row.model == model]
        first, best = min(own, key=lambda row: row.x), max(own, key=lambda row: row.requests_per_s)
        times = best.requests_per_s / first.requests_per_s
        if times <= NOISE:
            told.append(f"{model} does about as much with any size, at most {times:.2f} times what {first.x:.0f} gives")
            continue
        told.append(
            f"{model} does most with {best.x:.0f} rows, {times:.2f} times as much as with {first.x:.0f} (p99 "
            f"{best.p99_ms:.0f} against {first.p99_ms:.0f} ms)"
        )
    return "; ".join(told) + "."
