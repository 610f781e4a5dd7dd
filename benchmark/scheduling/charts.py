"""The charts: SVG whose text is text, the same bytes for the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from scheduling.comparison import Measured, chosen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from scheduling.throughput import Throughput

# Told apart by those who see no red or green, too. Source: Okabe and Ito's palette.
COLOURS = {"fifo": "#0072B2", "length_aware": "#E69F00", "grouped": "#009E73", "cost": "#CC79A7"}
OTHER_COLOUR = "#56B4E9"
THROUGHPUT_FIGURES = (
    ("rows_per_s", "rows per second (more is better)"),
    ("p99_ms", "p99 latency, ms (less is better)"),
    ("cpu_ms_per_row", "CPU ms per row (less is better)"),
)

PADDING_COLOUR = "#BBBBBB"

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jitney",
    "font.size": 11,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#DDDDDD",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def plotting() -> Any:
    """`matplotlib.pyplot`, set up to draw into files only; imported when the first chart is drawn."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update(_STYLE)
    return pyplot


def by_batch(path: Path, rows: Sequence[Measured], scheduler: str) -> None:
    """Bars of the tokens that a scheduler costs at each batch size. Their scale is that of the dearest scheduler."""
    pyplot = plotting()
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    sizes = sorted({row.batch_size for row in rows})
    for place, size in enumerate(sizes):
        found = chosen(rows, scheduler=scheduler, batch_size=size)
        own, padding = (mean(getattr(row, name) for row in found) / 1000 for name in ("own_tokens", "padding_tokens"))
        whole = [row.batch_tokens / 1000 for row in found]
        # Sums of fractions: where all seeds agree, a whisker may come out a hair below nothing.
        around = [[max(0.0, own + padding - min(whole))], [max(0.0, max(whole) - own - padding)]]
        axes.bar(place, own, 0.6, color=_colour(scheduler), label="the texts' own tokens" if place == 0 else None)
        axes.bar(place, padding, 0.6, own, color=PADDING_COLOUR, label="padding" if place == 0 else None)
        axes.errorbar(place, own + padding, around, color="black", capsize=4)
        axes.annotate(
            f"{own + padding:.1f}", (place, max(whole)), (0, 4), textcoords="offset points", ha="center", va="bottom"
        )
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel("rows per batch, at most")
    axes.set_ylabel(f"thousand tokens for {rows[0].requests:,} texts")
    axes.set_ylim(0, max(row.batch_tokens for row in rows) / 1000 * 1.18)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    axes.set_title(f"{scheduler}: mean of {len(found)} seeds (whiskers: least and most)", fontsize=11)
    _save(figure, path)


def sweep(path: Path, rows: Sequence[Measured], batch_size: int, backlogs: Mapping[int, str]) -> None:
    """Lines of the tokens per text over the share of short ones. `backlogs`: rows that wait, and how that is told."""
    pyplot = plotting()
    figure, axes = pyplot.subplots(figsize=(7.2, 4.6), layout="constrained")
    of_size = chosen(rows, batch_size=batch_size)
    shares = sorted({row.short_share for row in of_size})
    percent = [100 * share for share in shares]
    for scheduler in dict.fromkeys(row.scheduler for row in of_size):
        told = backlogs if scheduler not in ("fifo", "length_aware") else dict([next(iter(backlogs.items()))])
        for number, (backlog_rows, name) in enumerate(told.items()):
            tokens = [
                mean(
                    row.batch_tokens / row.requests
                    for row in chosen(of_size, scheduler=scheduler, short_share=share, backlog_rows=backlog_rows)
                )
                for share in shares
            ]
            label = scheduler if len(told) == 1 else f"{scheduler}, {name}"
            line = {"linestyle": (0, (2, 3)), "linewidth": 4} if scheduler == "length_aware" else {}
            axes.plot(percent, tokens, marker="os"[number], color=_colour(scheduler), label=label, **line)
    own = [mean(row.own_tokens / row.requests for row in chosen(of_size, short_share=share)) for share in shares]
    axes.plot(percent, own, color="black", linestyle="--", linewidth=1, label="no padding at all")
    axes.set_xlabel("short texts among all, %")
    axes.set_ylabel("tokens computed per text")
    axes.set_ylim(0)
    axes.set_xlim(0, 100)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    axes.set_title(f"Batches of at most {batch_size} rows", fontsize=11)
    _save(figure, path)


def throughput(path: Path, rows: Sequence[Throughput]) -> None:
    """For each model side by side: rows per second, latency, and CPU time, which holds whatever else is running."""
    pyplot = plotting()
    models = list(dict.fromkeys(row.model for row in rows))
    figure, grid = pyplot.subplots(
        len(models), len(THROUGHPUT_FIGURES), figsize=(14.4, 3.9 * len(models)), layout="constrained", squeeze=False
    )
    for model, places in zip(models, grid, strict=True):
        of_model = [row for row in rows if row.model == model]
        for axes, (name, label) in zip(places, THROUGHPUT_FIGURES, strict=True):
            _grouped_bars(axes, of_model, name, label)
        places[0].set_title(model, loc="left", fontsize=11)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    _save(figure, path)


def _grouped_bars(axes: Axes, rows: Sequence[Throughput], figure: str, label: str) -> None:
    """Medians of the rounds, with the least and the most of them as whiskers."""
    sizes = sorted({row.batch_size for row in rows})
    schedulers = list(dict.fromkeys(row.scheduler for row in rows))
    width = 0.8 / len(schedulers)
    top = 0.0
    for number, scheduler in enumerate(schedulers):
        for place, size in enumerate(sizes):
            found = [getattr(row, figure) for row in rows if (row.scheduler, row.batch_size) == (scheduler, size)]
            middle, at = median(found), place + (number - (len(schedulers) - 1) / 2) * width
            axes.bar(at, middle, width * 0.92, color=_colour(scheduler), label=scheduler if place == 0 else None)
            axes.errorbar(at, middle, [[middle - min(found)], [max(found) - middle]], color="black", capsize=3)
            axes.annotate(
                f"{middle:,.{0 if middle >= 10 else 2}f}",
                (at, max(found)),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
            top = max(top, *found)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel("rows per batch, at most")
    axes.set_ylabel(label)
    axes.set_ylim(0, top * 1.15)


def _colour(scheduler: str) -> str:
    return COLOURS.get(scheduler, OTHER_COLOUR)


def _save(figure: Any, path: Path) -> None:
    # Without the date, so that what has not changed is no change to the repository either.
    figure.savefig(path, format="svg", metadata={"Date": None})
    plotting().close(figure)
