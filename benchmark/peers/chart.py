"""A chart for each workload: the peers below each other, a bar for each number of callers, a panel for each figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmark.charts import COLOURS, save
from benchmark.peers.registry import PEERS
from benchmark.peers.rows import Row, medians
from benchmark.peers.workloads import Workload

_PANELS = {
    "requests_per_s": "throughput, requests/s (more is better)",
    "p50_ms": "median latency, ms (less is better)",
    "p99_ms": "p99 latency, ms (less is better)",
    "cpu_ms_per_request": "server CPU per request, ms (less is better)",
}
_PEER_INCHES = 0.62
_BARS_SHARE = 0.84
# Behind the longest bar there is room for its value.
_ROOM = 1.22


def draw(rows: Sequence[Row], workload: Workload, path: Path) -> None:
    """Of the medians; peers without figures are left to the table, which says why."""
    figure = figure_of([row for row in medians(rows) if row.workload == workload.name and not row.fault], workload)
    save(figure, path)


def figure_of(rows: Sequence[Row], workload: Workload) -> Figure:
    """rows: one for each peer and number of callers."""
    peers = [name for name in PEERS if any(row.peer == name for row in rows)]
    levels = sorted({row.callers for row in rows})
    figure = Figure(figsize=(4.4 * len(_PANELS), 1.6 + _PEER_INCHES * len(peers)), layout="constrained")
    figure.suptitle(workload.title)
    panels = figure.subplots(1, len(_PANELS), sharey=True, squeeze=False)[0]
    found = {(row.peer, row.callers): row for row in rows}
    for axes, what in zip(panels, _PANELS, strict=True):
        _bars(axes, found, peers, levels, what)
    panels[0].set_yticks(range(len(peers)), [PEERS[name].title.strip("*") for name in peers])
    panels[0].invert_yaxis()
    labels = [f"{callers} caller{'s' * (callers > 1)}" for callers in levels]
    handles = panels[0].containers
    figure.legend(handles, labels, loc="outside lower center", ncols=len(levels), frameon=False)
    return figure


def _bars(axes: Any, found: dict[tuple[str, int], Row], peers: Sequence[str], levels: Sequence[int], what: str) -> None:
    height = _BARS_SHARE / len(levels)
    largest = 0.0
    for number, callers in enumerate(levels):
        values = [_value(found.get((peer, callers)), what) for peer in peers]
        places = [place + (number - (len(levels) - 1) / 2) * height for place in range(len(peers))]
        drawn = axes.barh(
            places, [0 if math.isnan(value) else value for value in values], height, color=COLOURS[number]
        )
        axes.bar_label(drawn, [_shown(value) for value in values], fontsize=6.5, padding=2)
        largest = max([largest, *(value for value in values if not math.isnan(value))])
    axes.set_xlim(0, _ROOM * largest or 1)
    axes.set_xlabel(_PANELS[what])
    axes.set_axisbelow(True)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _value(row: Row | None, what: str) -> float:
    return math.nan if row is None else float(getattr(row, what))


def _shown(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
