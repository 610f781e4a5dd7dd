"""A Flask route that calls the model for each request, against dynamic batching."""

from __future__ import annotations

from dataclasses import replace

from charts import LABELS, bars, figure_of
from matplotlib.figure import Figure
from trials import DIRECT, JITNEY, NOISE, Row, serving

from comparisons.scale import Scale

NAME = "batching_comparison"
TITLE = "Direct calls against dynamic batching"

CALLERS = (1, 64)
MODELS = ("dense", "decomposition")
_VARIANTS = {"direct": DIRECT, "dynamic": JITNEY}

# With fewer rows than this, whatever else differs makes the difference.
_LEAST_BATCH = 1.1


def measure(scale: Scale) -> list[Row]:
    rows = []
    for model in MODELS:
        for variant, app in _VARIANTS.items():
            with serving(model, variant, scale.duration_s, app=app, batch_policy="eager") as trial:
                found = [trial.closed(callers, callers) for callers in CALLERS]
            # Direct calls have no batches that a server could count: each is one.
            rows += [replace(row, mean_batch_size=1.0) for row in found] if app == DIRECT else found
    return rows


def draw(rows: list[Row]) -> Figure:
    figure, panels = figure_of(TITLE, 3)
    groups = [f"{model}\n{callers} caller{'s' if callers > 1 else ''}" for model in MODELS for callers in CALLERS]
    for axes, what, form in zip(
        panels,
        ("requests_per_s", "p99_ms", "cpu_ms_per_request"),
        ("{:,.0f}", "{:,.0f}", "{:.1f}"),
        strict=True,
    ):
        series = [(variant, [getattr(row, what) for row in rows if row.variant == variant]) for variant in _VARIANTS]
        bars(axes, groups, series, LABELS[what], form)
        axes.tick_params(axis="x", labelsize=8)
    return figure


def says(rows: list[Row]) -> str:
    found = {(row.model, row.variant, row.x): row for row in rows}
    told = []
    for model in MODELS:
        for callers in CALLERS:
            direct, dynamic = (found[model, variant, callers] for variant in _VARIANTS)
            times = dynamic.requests_per_s / direct.requests_per_s
            verdict = "pays" if times > NOISE else "does not pay" if times < 1 / NOISE else "makes no difference"
            if times > NOISE and dynamic.mean_batch_size < _LEAST_BATCH:
                verdict = "cannot be what makes the difference"
            told.append(
                f"{model} with {callers} caller{'s' if callers > 1 else ''}: batching {verdict}, {times:.2f} times the "
                f"throughput of direct calls (p99 {dynamic.p99_ms:.1f} against {direct.p99_ms:.1f} ms, batches of "
                f"{dynamic.mean_batch_size:.1f})"
            )
    return (
        f"{'; '.join(told)}. The direct server is a plain Flask app in the same worker class, with threads on any core."
    )
