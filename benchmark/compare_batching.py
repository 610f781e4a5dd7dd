"""Compares ways to batch on real servers: gunicorn in a process of its own, load from this one.

Writes a chart and a CSV file for each comparison, and one document with figures, command, machine and date.

    python benchmark/compare_batching.py [--full] [--only NAME] [--plots benchmark/plots] [--write docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from charts import save
from comparisons import batch_size, batching, padding, policy, queue_wait, strategy
from comparisons.scale import FULL, QUICK, Scale
from publishing import add_write, publish, when_and_where
from trials import Row, write_csv

COMPARISONS: tuple[ModuleType, ...] = (batching, strategy, batch_size, queue_wait, padding, policy)

_INTRODUCTION = """\
Each figure is from a real server: gunicorn in a process of its own with one worker whose model has one native thread,
and the load from another process on the same machine, which takes its share of the cores. Latency in open loops (those
with a load in %) counts from when a request was due. Every answer was compared with the answer to the same body asked
alone; errors and wrong answers are listed where there were any. Percentiles are of as many requests as stand beside
them: of a hundred, the 99th rests on a single one. Each server had half a second of the same load before. Differences
below 10% are taken for none. CPU time is the server's, all its processes together.
The models are described in `benchmark/served_models.py`: *dense* is one whose batches cost far less than their rows
alone, *decomposition* one whose batches cost exactly that, *transformer* one for texts.
"""


def document(parts: list[tuple[ModuleType, list[Row]]], command: str, charts: str) -> str:
    lines = [
        "# Benchmarks",
        "",
        f"`{command}`, {when_and_where()}; load average at the start {_LOAD_BEFORE:.1f}, which is 0 on a quiet "
        "machine.",
        "",
        _INTRODUCTION,
    ]
    for comparison, rows in parts:
        lines += [
            f"## {comparison.TITLE}",
            "",
            f"![{comparison.TITLE}]({charts}/{comparison.NAME}.svg)",
            "",
            said(comparison, rows),
            "",
            *table(rows),
            "",
        ]
    return "\n".join(lines)


def said(comparison: ModuleType, rows: list[Row]) -> str:
    """What follows from the figures; nothing where a load had no answers, and with a warning where some failed."""
    empty = [row for row in rows if not row.requests_per_s > 0 or math.isnan(row.p99_ms)]
    if empty:
        return f"Nothing follows from this: {', '.join(map(_name, empty))} had no answers."
    failed = [row for row in rows if row.errors or row.wrong_answers]
    if failed:
        named = ", ".join(f"{_name(row)}{_faults(row)}" for row in failed)
        return f"Not all was answered rightly, and latencies are of what was answered: {named}. {comparison.says(rows)}"
    said: str = comparison.says(rows)
    return said


def _name(row: Row) -> str:
    return f"{row.model}, {row.variant}, {row.load}"


_COLUMNS = (
    "model",
    "variant",
    "load",
    "requests",
    "requests/s",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "mean batch",
    "CPU ms/request",
)


def table(rows: list[Row]) -> list[str]:
    return [_line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *(_line(_cells(row)) for row in rows)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: Row) -> list[str]:
    rate = f"{row.requests_per_s:,.0f}{_faults(row)}"
    times = map(_ms, (row.p50_ms, row.p95_ms, row.p99_ms))
    batch = "-" if math.isnan(row.mean_batch_size) else f"{row.mean_batch_size:.1f}"
    return [
        *(row.model, row.variant, row.load, f"{row.requests:,}", rate),
        *times,
        batch,
        _ms(row.cpu_ms_per_request),
    ]


def _faults(row: Row) -> str:
    told = [f"{row.errors} errors"] * bool(row.errors) + [f"{row.wrong_answers} wrong"] * bool(row.wrong_answers)
    return f" ({', '.join(told)})" if told else ""


def _ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def command_of(arguments: argparse.Namespace) -> str:
    """What gives the same again."""
    if arguments.only is None and arguments.duration is None:
        return f"make bench{'-full' * arguments.full}"
    words = ["--full"] * arguments.full
    words += ["--only", arguments.only] if arguments.only is not None else []
    words += ["--duration", f"{arguments.duration:g}"] if arguments.duration is not None else []
    return " ".join(["python benchmark/compare_batching.py", *words])


_LOAD_BEFORE = os.getloadavg()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="more points and longer loads, about 40 minutes")
    parser.add_argument("--only", choices=[comparison.NAME for comparison in COMPARISONS], help="that one alone")
    parser.add_argument("--duration", type=float, help="of each load, seconds")
    parser.add_argument("--plots", type=Path, default=Path(__file__).parent / "plots")
    add_write(parser, "document")
    arguments = parser.parse_args()
    scale: Scale = FULL if arguments.full else QUICK
    if arguments.duration is not None:
        scale = replace(scale, duration_s=arguments.duration)
    arguments.plots.mkdir(parents=True, exist_ok=True)
    began, parts = time.monotonic(), []
    for comparison in COMPARISONS:
        if arguments.only in (None, comparison.NAME):
            print(comparison.TITLE, file=sys.stderr, flush=True)
            rows = comparison.measure(scale)
            write_csv(rows, arguments.plots / f"{comparison.NAME}.csv")
            save(comparison.draw(rows), arguments.plots / f"{comparison.NAME}.svg")
            parts.append((comparison, rows))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    where = arguments.write.parent if arguments.write else Path.cwd()
    charts = os.path.relpath(arguments.plots, where)
    text = document(parts, command_of(arguments), charts)
    publish(text, arguments.write)
    wrong = sum(row.wrong_answers for _, rows in parts for row in rows)
    if wrong:
        sys.exit(f"{wrong} answers were wrong")


if __name__ == "__main__":
    main()
