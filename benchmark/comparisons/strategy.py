"""Batches that leave as soon as it makes sense, against batches that wait until they are full."""

from __future__ import annotations

import math

from charts import line_charts, logarithmic
from matplotlib.figure import Figure
from trials import NOISE, Row, serving

from comparisons.capacity import capacity_of
from comparisons.scale import Scale

NAME = "batching_strategy_comparison"
TITLE = "Dynamic against static batches, dense model, Poisson arrivals"

LOADS = (0.1, 0.4, 0.7)

# What ends the wait of a static batch that never fills, or the last requests would wait for ever.
_STATIC_WAIT_MS = 1000
_VARIANTS = {
    "dynamic": {"max_batch_size": 32, "batch_policy": "eager"},
    "static, 8 rows": {"max_batch_size": 8, "max_batch_latency_ms": _STATIC_WAIT_MS, "batch_policy": "window"},
    "static, 32 rows": {"max_batch_size": 32, "max_batch_latency_ms": _STATIC_WAIT_MS, "batch_policy": "window"},
}


def measure(scale: Scale) -> list[Row]:
    capacity = capacity_of("dense", scale)
    rows = []
    for variant, settings in _VARIANTS.items():
        with serving("dense", variant, scale.duration_s, **settings) as trial:
            rows += [trial.poisson(capacity * load, f"{load:.0%} load", load * 100) for load in LOADS]
    return rows


def draw(rows: list[Row]) -> Figure:
    figures = ("p50_ms", "p99_ms", "mean_batch_size")
    figure, panels = line_charts(TITLE, rows, by="variant", xlabel="load, % of the capacity", figures=figures)
    for what in ("p50_ms", "p99_ms"):
        logarithmic(panels[what])
    return figure


def says(rows: list[Row]) -> str:
    at = {(row.variant, row.x): row for row in rows}
    pairs = [(at["static, 32 rows", load * 100], at["dynamic", load * 100]) for load in (LOADS[0], LOADS[-1])]
    told = [
        f"at {static.x:.0f} % load the median latency is {static.p50_ms:.1f} ms where a batch waits for 32 rows and "
        f"{dynamic.p50_ms:.1f} ms with dynamic batches{_cpu(static, dynamic)}"
        for static, dynamic in pairs
    ]
    return f"Measured {'; '.join(told)}: {_conclusion(pairs)}."


def _cpu(static: Row, dynamic: Row) -> str:
    if math.isnan(static.cpu_ms_per_request + dynamic.cpu_ms_per_request):
        return ""
    return f", and a request costs {static.cpu_ms_per_request:.2f} and {dynamic.cpu_ms_per_request:.2f} ms of CPU time"


def _conclusion(pairs: list[tuple[Row, Row]]) -> str:
    """What waiting for full batches did at all of these loads, each told by static and dynamic."""
    saves = all(static.cpu_ms_per_request * NOISE < dynamic.cpu_ms_per_request for static, dynamic in pairs)
    waits = all(static.p50_ms > NOISE * dynamic.p50_ms for static, dynamic in pairs)
    cpu = "less CPU time" if saves else "no less CPU time throughout"
    return f"full batches took {cpu}, and {'longer to answer' if waits else 'no longer to answer throughout'}"
