"""Texts padded to the longest of their batch, against texts padded to a fixed length."""

from __future__ import annotations

from charts import LABELS, bars, figure_of
from matplotlib.figure import Figure
from trials import Row, serving

from comparisons.scale import Scale

NAME = "padding_comparison"
TITLE = "Dynamic against fixed-length padding, transformer, 64 callers"

CALLERS = 64
_FIXED_WORDS = 128
# Far fewer than wait, so that there is a choice of whom to put together.
_ROWS = 8
_VARIANTS = {
    "dynamic": {"scheduler": "fifo"},
    "dynamic, grouped": {"scheduler": "grouped"},
    "dynamic, cost": {"scheduler": "cost"},
    f"fixed, {_FIXED_WORDS} words": {"scheduler": "fifo", "pad_to_multiple_of": _FIXED_WORDS},
}


def measure(scale: Scale) -> list[Row]:
    rows = []
    for number, (variant, settings) in enumerate(_VARIANTS.items()):
        with serving(
            "transformer", variant, scale.duration_s, max_batch_size=_ROWS, batch_policy="eager", **settings
        ) as trial:
            rows.append(trial.closed(CALLERS, number))
    return rows


def draw(rows: list[Row]) -> Figure:
    figure, panels = figure_of(TITLE, 4)
    for axes, what, form in zip(
        panels,
        ("requests_per_s", "p99_ms", "cpu_ms_per_request", "padding_share"),
        ("{:,.0f}", "{:,.0f}", "{:.1f}", "{:.0f}"),
        strict=True,
    ):
        scale = 100 if what == "padding_share" else 1
        variants = [row.variant.replace(", ", ",\n") for row in rows]
        bars(axes, variants, [("", [scale * getattr(row, what) for row in rows])], LABELS[what], form)
    return figure


def says(rows: list[Row]) -> str:
    dynamic, grouped, cost, fixed = ({row.variant: row for row in rows}[variant] for variant in _VARIANTS)

    def gain(row: Row) -> str:
        return (
            f"{row.padding_share:.0%} and {row.requests_per_s / fixed.requests_per_s:.2f} times the throughput "
            f"(p99 {row.p99_ms:.0f} ms)"
        )

    return (
        f"With nine short texts in ten, padding to {_FIXED_WORDS} words makes {fixed.padding_share:.0%} of all words "
        f"padding (p99 {fixed.p99_ms:.0f} ms). Dynamic padding in arrival order has {gain(dynamic)}, batches of "
        f"similar length (SCHEDULER=grouped) {gain(grouped)}, and batches chosen by their cost, the default for texts, "
        f"{gain(cost)}."
    )
