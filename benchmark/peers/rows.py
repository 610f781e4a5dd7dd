"""Measured figures as rows of a CSV file: one for each load, kept apart by round, so that later runs can be added."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One load on one server, or why there was none: then `fault` says it, `callers` is 0 and the figures are NaN.

    seconds: how long it lasted. load: what it was put on with. version: of the server's packages. measured_on: a date
    in ISO 8601.
    """

    workload: str
    peer: str
    callers: int
    round: int
    requests_per_s: float = math.nan
    p50_ms: float = math.nan
    p99_ms: float = math.nan
    cpu_ms_per_request: float = math.nan
    errors: int = 0
    seconds: float = math.nan
    load: str = ""
    version: str = ""
    machine: str = ""
    measured_on: str = ""
    fault: str = ""


_TYPES = {"int": int, "float": lambda text: float(text) if text else math.nan, "str": str}


def read(path: Path) -> list[Row]:
    """Empty where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(**{field.name: _TYPES[str(field.type)](line[field.name]) for field in fields(Row)})
            for line in csv.DictReader(file)
        ]


def write(rows: Iterable[Row], path: Path) -> None:
    """Ordered, so that a file changes only where figures have changed."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: (row.workload, row.peer, row.callers, row.round)):
            writer.writerow({name: _shown(value) for name, value in asdict(row).items()})


def merged(old: Iterable[Row], new: Sequence[Row], first_round: int = 1) -> list[Row]:
    """The new rows, and those old ones that they say nothing about.

    What was measured anew is replaced as a whole, from `first_round` on: rounds of another day, or a fault that is
    mended, must not stand beside it.
    """
    measured = {(row.workload, row.peer) for row in new}
    runs = {(row.workload, row.peer) for row in new if not row.fault}
    kept = [
        row
        for row in old
        if (row.workload, row.peer) not in measured
        or (row.round < first_round and not (row.fault and (row.workload, row.peer) in runs))
    ]
    return [*kept, *new]


def medians(rows: Iterable[Row]) -> list[Row]:
    """One row for each load: of its rounds the median of each figure, and all errors."""
    loads: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        loads.setdefault((row.workload, row.peer, row.callers), []).append(row)
    return [_median(of_one) for of_one in loads.values()]


def _median(rows: Sequence[Row]) -> Row:
    figures = {
        name: statistics.median(getattr(row, name) for row in rows)
        for name in ("requests_per_s", "p50_ms", "p99_ms", "cpu_ms_per_request")
    }
    return replace(rows[-1], **figures, errors=sum(row.errors for row in rows))


def _shown(value: object) -> object:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"
