"""MAX_BATCH_LATENCY_MS from 0 to 50, with the policy that waits it out."""

from __future__ import annotations

from charts import line_charts
from matplotlib.figure import Figure
from trials import NOISE, Row, serving

from comparisons.scale import Scale

NAME = "queue_wait_comparison"
TITLE = "MAX_BATCH_LATENCY_MS, dense model, BATCH_POLICY=window"

# Few callers can do nothing while they wait; many fill a batch before the wait is over.
CALLERS = (8, 64)


def measure(scale: Scale) -> list[Row]:
    rows = []
    for wait_ms in scale.waits_ms:
        settings = {"max_batch_latency_ms": wait_ms, "batch_policy": "window", "max_batch_size": 32}
        with serving("dense", f"{wait_ms:g} ms", scale.duration_s, **settings) as trial:
            rows += [trial.closed(callers, wait_ms) for callers in CALLERS]
    return rows


def draw(rows: list[Row]) -> Figure:
    figures = ("requests_per_s", "p99_ms", "mean_batch_size")
    figure, _ = line_charts(TITLE, rows, by="load", xlabel="MAX_BATCH_LATENCY_MS", figures=figures)
    return figure


def says(rows: list[Row]) -> str:
    told = []
    for callers in CALLERS:
        own = [row for row in rows if row.load == f"{callers} callers"]
        best, worst = (pick(own, key=lambda row: row.requests_per_s) for pick in (max, min))
        share = worst.requests_per_s / best.requests_per_s
        if share >= 1 / NOISE:
            told.append(f"with {callers} callers all give about as much, {best.requests_per_s:.0f} requests/s")
            continue
        told.append(
            f"with {callers} callers {best.x:g} ms gives most ({best.requests_per_s:.0f} requests/s), and {worst.x:g} "
            f"ms least, {share:.2f} times that (p99 {worst.p99_ms:.0f} against {best.p99_ms:.0f} ms)"
        )
    return f"W{'; '.join(told).removeprefix('w')}."
