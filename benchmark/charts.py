"""How the charts look: one place for colours, axes and files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

# Apart also for who does not see red and green apart. Source: Okabe and Ito.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = "osD^vP"

# What the axis of each measured figure is called, by the field of a row.
LABELS = {
    "requests_per_s": "throughput, requests/s",
    "p50_ms": "median latency, ms",
    "p99_ms": "p99 latency, ms",
    "cpu_ms_per_request": "server CPU per request, ms",
    "mean_batch_size": "mean batch size, rows",
    "padding_share": "padding, % of all words",
}


def figure_of(title: str, panels: int) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(4.6 * panels, 4.2), layout="constrained")
    figure.suptitle(title)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def lines(axes: Any, series: Iterable[tuple[str, Sequence[float], Sequence[float]]], xlabel: str, ylabel: str) -> None:
    """One line for each (label, x, y), from zero upwards."""
    for number, (label, x, y) in enumerate(series):
        axes.plot(x, y, color=COLOURS[number], marker=MARKERS[number], markersize=5, label=label)
    _dress(axes, xlabel, ylabel)
    axes.legend(frameon=False, fontsize=9)


def line_charts(
    title: str, rows: Sequence[Any], *, by: str, xlabel: str, figures: Sequence[str]
) -> tuple[Figure, dict[str, Any]]:
    """A panel for each of `figures`, fields of the rows, over their `x`, with a line for each value of the field `by`.

    The panels come with it, by figure.
    """
    figure, panels = figure_of(title, len(figures))
    for axes, what in zip(panels, figures, strict=True):
        lines(axes, series(rows, by, what), xlabel, LABELS[what])
    return figure, dict(zip(figures, panels, strict=True))


def bars(
    axes: Any, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], ylabel: str, form: str = "{:,.0f}"
) -> None:
    """Bars side by side in each group, with their values on top; of a single series each has a colour of its own."""
    width = 0.8 / len(series)
    for number, (label, values) in enumerate(series):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        colours = COLOURS[number] if len(series) > 1 else COLOURS[: len(groups)]
        drawn = axes.bar(places, values, width * 0.92, color=colours, label=label)
        axes.bar_label(drawn, ["" if isnan(value) else form.format(value) for value in values], fontsize=8, padding=2)
    axes.set_xticks(range(len(groups)), groups)
    _dress(axes, "", ylabel)
    axes.grid(visible=False, axis="x")
    # Above the bars there is room for their values, and for a legend where there is one.
    top = max((value for _, values in series for value in values if value > 0), default=1.0)  # what is NaN is not
    axes.set_ylim(0, (1.3 if len(series) > 1 else 1.1) * top)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=len(series))


def series(rows: Iterable[Any], by: str, what: str) -> list[tuple[str, list[float], list[float]]]:
    """A line for each value that the attribute `by` has: `what` over `x`."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        x, y = found.setdefault(getattr(row, by), ([], []))
        x.append(row.x)
        y.append(getattr(row, what))
    return [(label, x, y) for label, (x, y) in found.items()]


def powers_of_two(axes: Any, ticks: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"{axes.get_xlabel()} (logarithmic)")


def logarithmic(axes: Any) -> None:
    """For latencies that differ by orders of magnitude; a logarithmic axis has no zero, and its label says so."""
    axes.set_ylim(auto=True)  # the zero that other axes begin at cannot be shown
    axes.set_yscale("log")
    axes.autoscale(axis="y")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.set_ylabel(f"{axes.get_ylabel()} (logarithmic)")


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None})


def _dress(axes: Any, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_ylim(0, None)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
