"""BATCH_POLICY over loads: leaving when the worker is free, against waiting a fixed time."""

from __future__ import annotations

import math
from contextlib import ExitStack
from itertools import product

from charts import line_charts, logarithmic
from matplotlib.figure import Figure
from trials import NOISE, Row, median_of, serving

from comparisons.capacity import capacity_of
from comparisons.scale import Scale

NAME = "policy_by_load"
TITLE = "BATCH_POLICY by load, dense model, Poisson arrivals"

EAGER = "eager"


def measure(scale: Scale) -> list[Row]:
    capacity = capacity_of("dense", scale)
    variants = {EAGER: {"batch_policy": "eager"}} | {
        f"window, {window_ms:g} ms": {"batch_policy": "window", "max_batch_latency_ms": window_ms}
        for window_ms in scale.windows_ms
    }
    found: dict[tuple[str, float], list[Row]] = {(variant, load): [] for variant in variants for load in scale.loads}
    with ExitStack() as servers:
        # All at once, and asked in turns: what else this machine does meanwhile then happens to each of them.
        trials = {
            variant: servers.enter_context(serving("dense", variant, scale.duration_s, max_batch_size=32, **settings))
            for variant, settings in variants.items()
        }
        for _, load, variant in product(range(scale.rounds), scale.loads, variants):
            found[variant, load].append(trials[variant].poisson(capacity * load, f"{load:.0%} load", load * 100))
    return [median_of(rows) for rows in found.values()]


def draw(rows: list[Row]) -> Figure:
    figures = ("p50_ms", "p99_ms", "cpu_ms_per_request", "mean_batch_size")
    figure, panels = line_charts(TITLE, rows, by="variant", xlabel="load, % of the capacity", figures=figures)
    for what in ("p50_ms", "p99_ms"):
        logarithmic(panels[what])
    return figure


def says(rows: list[Row]) -> str:
    windows = [row for row in rows if row.variant != EAGER]
    eager = {row.x: row for row in rows if row.variant == EAGER}
    worse = [
        (row, name, what)
        for row in windows
        for name, what in (("p50", "p50_ms"), ("p99", "p99_ms"))
        if getattr(eager[row.x], what) > NOISE * getattr(row, what)
    ]
    low = min(eager)
    window = min((row for row in windows if row.x == low), key=lambda row: row.p50_ms)
    cpu_ms = eager[low].cpu_ms_per_request, window.cpu_ms_per_request
    cpu = "" if math.isnan(sum(cpu_ms)) else " ({:.2f} against {:.2f} ms of CPU per request)".format(*cpu_ms)
    head = (
        f"At {low:.0f} % load eager has a median of {eager[low].p50_ms:.1f} ms, the best window {window.p50_ms:.1f} ms"
        f"{cpu}. "
    )
    if not worse:
        return f"{head}At no load has any window a p50 or p99 that is better by more than {NOISE - 1:.0%}."
    listed = "; ".join(
        f"{name} at {row.x:.0f} % ({getattr(eager[row.x], what):.1f} against {getattr(row, what):.1f} ms with "
        f"{row.variant})"
        for row, name, what in worse
    )
    return f"{head}Eager is worse by more than {NOISE - 1:.0%} in: {listed}.{_why(eager, [row for row, *_ in worse])}"


def _why(eager: dict[float, Row], better: list[Row]) -> str:
    """What the windows that were better have in common, and what may be the reason where that is nothing."""
    if not all(row.mean_batch_size > eager[row.x].mean_batch_size for row in better):
        return (
            " Not all of these windows have larger batches, so that it is not their size alone: a worker that leaves "
            "as soon as it can may also take the interpreter from the threads that bring more rows."
        )
    cheaper = [row for row in better if row.cpu_ms_per_request < eager[row.x].cpu_ms_per_request]
    told = ""
    if cheaper:
        row = max(cheaper, key=lambda row: row.x)
        told = (
            f", and at {row.x:.0f} % a request costs {row.cpu_ms_per_request:.2f} instead of "
            f"{eager[row.x].cpu_ms_per_request:.2f} ms of CPU time"
        )
    return (
        f" In all of these the window's batches are larger{told}: near the capacity, that is what the queue is made of."
    )
