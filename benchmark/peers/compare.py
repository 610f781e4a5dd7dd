"""Jitney beside the servers that one could use instead: the same models, inputs, threads and load for all of them.

Each peer has an environment of its own, made when it is first needed. Its answers are compared with the raw model's
before it is timed. Rounds go through all peers again and again, so that what else the machine does meanwhile hits all.

    python -m benchmark.peers.compare [--workloads tabular text picture] [--peers jitney mosec ...]
        [--concurrency 1 8 32 128] [--seconds S] [--rounds 3] [--merge] [--first-round 1] [--folder DIRECTORY]

With --merge the figures of others stay, and those of the peers that are run replace their old ones; --first-round 2
adds a second round to a first one that was measured before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.peers import rows as csv_rows
from benchmark.peers.chart import draw
from benchmark.peers.document import document
from benchmark.peers.load import CLIENT, WRK
from benchmark.peers.measuring import Turn, right_answers, rows_of
from benchmark.peers.registry import PEERS
from benchmark.peers.rows import Row
from benchmark.peers.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]
CONCURRENCY = (1, 8, 32, 128)
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. `seconds`: of each load; None: as long as the workload says."""

    workloads: Sequence[str]
    peers: Sequence[str]
    concurrency: Sequence[int]
    seconds: float | None
    rounds: range
    folder: Path


def run(plan: Plan) -> Iterator[list[Row]]:
    """The rows of one peer after the other: every round of a workload goes through all of them.

    Raises NoModel where a workload has no model.
    """
    for name in plan.workloads:
        workload = WORKLOADS[name]
        inputs = workload.inputs()
        right = right_answers(workload, inputs, plan.folder)
        seconds = workload.seconds if plan.seconds is None else plan.seconds
        for number in plan.rounds:
            turn = Turn(workload, inputs, right, plan.concurrency, seconds, number, plan.folder)
            for peer in plan.peers:
                found = rows_of(PEERS[peer], turn)
                _tell(found)
                yield found


def _tell(rows: Sequence[Row]) -> None:
    for row in rows:
        figures = (
            f"{row.requests_per_s:9.1f} requests/s, p50 {row.p50_ms:8.1f}, p99 {row.p99_ms:8.1f} ms, "
            f"CPU {row.cpu_ms_per_request:8.3f} ms, {row.errors} errors"
        )
        said = row.fault or f"{row.callers:4} callers {figures}"
        print(f"  {row.workload:<8} {row.peer:<16} round {row.round} {said}", file=sys.stderr, flush=True)


def show(rows: Sequence[Row], plots: Path, text: Path, command: str) -> None:
    """A chart for each workload, and the document."""
    for workload in WORKLOADS.values():
        if any(row.workload == workload.name and not row.fault for row in rows):
            draw(rows, workload, plots / f"peers_{workload.name}.svg")
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(document(rows, command, os.path.relpath(plots, text.parent)), encoding="utf-8")


def default_folder() -> Path:
    """Below the user's own folder for what can be made anew."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jitney-peers"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    made.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    made.add_argument("--concurrency", nargs="+", type=int, default=list(CONCURRENCY), help="callers")
    made.add_argument("--seconds", type=float, help="of each load; default: " + _default_seconds())
    made.add_argument("--rounds", type=int, default=ROUNDS)
    made.add_argument("--first-round", type=int, default=1, help="its number, where earlier ones are to stay")
    made.add_argument("--merge", action="store_true", help="keep the figures of others in the CSV file")
    made.add_argument("--folder", type=Path, default=default_folder(), help="of environments and models, several GB")
    made.add_argument("--plots", type=Path, default=ROOT / "benchmark" / "plots")
    made.add_argument("--write", type=Path, default=ROOT / "docs" / "peers.md", help="the document")
    made.add_argument("--only-write", action="store_true", help="measure nothing, write what the CSV file has")
    return made


def _default_seconds() -> str:
    return ", ".join(f"{workload.name} {workload.seconds:g}" for workload in WORKLOADS.values())


def main() -> None:
    arguments = parser().parse_args()
    if not shutil.which(WRK):
        print(f"wrk is not installed: the load comes from {CLIENT}, which costs far more CPU", file=sys.stderr)
    plan = Plan(
        workloads=arguments.workloads,
        peers=arguments.peers,
        concurrency=arguments.concurrency,
        seconds=arguments.seconds,
        rounds=range(arguments.first_round, arguments.first_round + arguments.rounds),
        folder=arguments.folder,
    )
    arguments.plots.mkdir(parents=True, exist_ok=True)
    results = arguments.plots / "peers_results.csv"
    others = csv_rows.read(results) if arguments.merge or arguments.only_write else []
    rows: list[Row] = []
    for found in () if arguments.only_write else run(plan):
        rows += found
        # After each peer, so that hours of figures outlive what may go wrong with the next one.
        csv_rows.write(csv_rows.merged(others, rows, arguments.first_round), results)
    show(csv_rows.merged(others, rows, arguments.first_round), arguments.plots, arguments.write, "make bench-peers")
    print(arguments.write.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
