"""The document: a chart and a table for each workload, what separates Jitney from the best, and how each was tuned."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from benchmark.peers.load import CLIENT, WRK
from benchmark.peers.registry import PEERS
from benchmark.peers.rows import Row, medians
from benchmark.peers.separation import separation
from benchmark.peers.workloads import WORKLOADS, Workload

_INTRODUCTION = """\
Each server runs the same model files with the same native threads, in a process group of its own on this machine, and
is asked by callers that each wait for their answer. A cell has **requests/s**; p50 / p99 in ms; and the CPU time of all
processes of the server per request in ms. Each figure is the median of as many rounds as are named, and rounds go
through all servers in turns. Before a server is timed, its answers to 64 inputs, 32 at a time, are compared with those
of the raw model asked alone; one that answers otherwise is not timed. The load takes its share of the cores. Latencies
are those of requests that were answered within the load. The raw model is no server: it is called in process, with all
bodies of a turn at hand.
"""


def document(rows: Sequence[Row], command: str, charts: str) -> str:
    """charts: where they lie, from the document's own folder."""
    lines = ["# Jitney beside other servers", "", f"`{command}`", "", *_measured(rows), "", _INTRODUCTION]
    for workload in WORKLOADS.values():
        here = [row for row in rows if row.workload == workload.name]
        if here:
            lines += [*_section(workload, here, charts), ""]
    return "\n".join([*lines, "## Tuning", "", *_tuning(rows), ""])


def table(rows: Sequence[Row]) -> list[str]:
    """A line for each peer, the fastest first, and a column for each number of callers; or why there is none."""
    found = {(row.peer, row.callers): row for row in medians(rows)}
    levels = sorted({callers for _, callers in found if callers})
    names = sorted({row.peer for row in rows}, key=lambda name: _rank(name, found, levels))
    heads = ["server", *(f"{callers} caller{'s' * (callers > 1)}" for callers in levels)]
    return [
        _line(heads),
        _line(["---"] * len(heads)),
        *(_line([PEERS[name].title, *_cells(name, found, levels)]) for name in names),
    ]


def _section(workload: Workload, rows: Sequence[Row], charts: str) -> list[str]:
    return [
        f"## {workload.title}",
        "",
        f"![{workload.title}]({charts}/peers_{workload.name}.svg)",
        "",
        f"Native threads: {workload.native_threads}. At most {workload.max_batch_size} rows in a batch, window "
        f"{workload.window_ms:g} ms, where the tuning does not say otherwise. {_extent(rows)}.",
        "",
        *table(rows),
        "",
        separation(rows),
    ]


def _measured(rows: Iterable[Row]) -> list[str]:
    """When and where; more than one line where figures were merged."""
    places: dict[str, set[str]] = {}
    loads = set()
    for row in rows:
        places.setdefault(row.machine, set()).add(row.measured_on)
        loads |= {row.load} & {WRK, CLIENT}
    when = [f"{', '.join(sorted(days))}, {place}." for place, days in places.items()]
    return [*when, f"Load from {' and '.join(sorted(loads))}." if loads else "No load was put on anything."]


def _extent(rows: Iterable[Row]) -> str:
    """How often and how long; a range where figures were merged."""
    runs = [row for row in rows if not row.fault]
    if not runs:
        return "Nothing was measured"
    rounds = set(Counter((row.peer, row.callers) for row in runs).values())
    return f"Rounds: {_range(rounds)}, each load for {_range({row.seconds for row in runs})} s"


def _range(values: Collection[float]) -> str:
    least, most = min(values), max(values)
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def _rank(name: str, found: dict[tuple[str, int], Row], levels: Sequence[int]) -> tuple[bool, float]:
    """The raw model first, then by requests/s with most callers; who has no figures last."""
    last = found.get((name, levels[-1])) if levels else None
    return PEERS[name].command is not None, math.inf if last is None else -last.requests_per_s


def _cells(name: str, found: dict[tuple[str, int], Row], levels: Sequence[int]) -> list[str]:
    cells = [_cell(found.get((name, callers))) for callers in levels]
    fault = found.get((name, 0))
    if fault is not None:
        said = " ".join(fault.fault.replace("|", "/").split())[:_LONGEST_FAULT]
        cells[:1] = [f"{cells[0]}; {said}" if cells and cells[0] else said]
    return cells


_LONGEST_FAULT = 200


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    errors = f", {row.errors} errors" * bool(row.errors)
    times = f"{_figure(row.p50_ms)} / {_figure(row.p99_ms)}"
    return f"**{_figure(row.requests_per_s)}**; {times}; {_figure(row.cpu_ms_per_request)}{errors}"


def _figure(value: float) -> str:
    """Three digits, as far as they matter."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _tuning(rows: Sequence[Row]) -> list[str]:
    versions = {row.peer: row.version for row in rows if row.version}
    lines = [
        _line([PEERS[name].title, versions.get(name, ""), PEERS[name].tuning])
        for name in PEERS
        if any(row.peer == name for row in rows)
    ]
    return [_line(["server", "versions", "tuning"]), _line(["---"] * 3), *lines]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
