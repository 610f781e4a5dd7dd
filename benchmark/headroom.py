"""How long requests take at each share of what a worker can do, by simulation.

Independent clients (Poisson arrivals) of single rows, one worker, batches of `n` rows that take `base + n * row`
milliseconds. 100 % is the most rows a second that full batches give. `window`: a batch leaves when it is full or its
oldest row has waited; `eager`: as soon as the worker is free.

    python benchmark/headroom.py [--base-ms 5] [--row-ms 0.3] [--rows 200000] [--write benchmark/headroom.md]
"""

from __future__ import annotations

import argparse
import random
from bisect import bisect_right
from dataclasses import dataclass

from publishing import add_write, publish

MOST = 32
WINDOW_MS = 5.0
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Cost:
    """What a batch takes, milliseconds."""

    base_ms: float
    row_ms: float

    def of(self, rows: int) -> float:
        return self.base_ms + rows * self.row_ms

    @property
    def most_per_ms(self) -> float:
        """Rows, in full batches."""
        return MOST / self.of(MOST)


def arrivals_ms(load: float, cost: Cost, rows: int) -> list[float]:
    """When rows come in; the same sequence at every load, faster or slower."""
    chance, now, found = random.Random(0), 0.0, []
    for _ in range(rows):
        now += chance.expovariate(load * cost.most_per_ms)
        found.append(now)
    return found


@dataclass(frozen=True)
class Outcome:
    """Times of requests, ascending; the share of its time that the worker computed; rows in a batch, on average."""

    times_ms: list[float]
    busy: float
    mean_batch: float

    def percentile(self, share: float) -> float:
        return self.times_ms[int(share * (len(self.times_ms) - 1))]


def simulate(arrived: list[float], cost: Cost, window_ms: float) -> Outcome:
    """window_ms: how long the oldest row waits for company; 0 for the eager policy."""
    times, free_at, first, busy_ms, batches = [], 0.0, 0, 0.0, 0
    while first < len(arrived):
        leaves_at = max(free_at, arrived[first] + window_ms)
        if first + MOST <= len(arrived):
            leaves_at = max(free_at, min(leaves_at, arrived[first + MOST - 1]))
        here = min(bisect_right(arrived, leaves_at) - first, MOST)
        took_ms = cost.of(here)
        free_at = leaves_at + took_ms
        times += [free_at - at for at in arrived[first : first + here]]
        first, busy_ms, batches = first + here, busy_ms + took_ms, batches + 1
    return Outcome(sorted(times), busy_ms / free_at, len(arrived) / batches)


def line(load: float, cost: Cost, rows: int) -> str:
    arrived = arrivals_ms(load, cost, rows)
    eager, window = simulate(arrived, cost, 0.0), simulate(arrived, cost, WINDOW_MS)
    cells = [f"{load:.0%}"]
    for outcome in (eager, window):
        cells += [f"{outcome.percentile(0.5):.1f}", f"{outcome.percentile(0.99):.1f}"]
        cells += [f"{outcome.mean_batch:.1f}", f"{outcome.busy:.0%}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-ms", type=float, default=5.0)
    parser.add_argument("--row-ms", type=float, default=0.3)
    parser.add_argument("--rows", type=int, default=200_000)
    add_write(parser, "table")
    arguments = parser.parse_args()
    cost = Cost(arguments.base_ms, arguments.row_ms)
    columns = "p50 ms | p99 ms | mean batch | worker busy"
    text = "\n".join(
        [
            "# Headroom",
            "",
            f"`python benchmark/headroom.py --base-ms {arguments.base_ms:g} --row-ms {arguments.row_ms:g}`: simulated, "
            f"{arguments.rows:,} requests of one row, batches of up to {MOST} rows, window of {WINDOW_MS:g} ms; 100 % "
            f"is {cost.most_per_ms * 1000:,.0f} rows/s.",
            "",
            f"| load | eager: {columns} | window: {columns} |",
            "|" + "---|" * 9,
            *(line(load, cost, arguments.rows) for load in LOADS),
            "",
        ]
    )
    publish(text, arguments.write)


if __name__ == "__main__":
    main()
