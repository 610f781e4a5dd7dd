"""What counting costs a request of one row that makes a batch of its own, the most that a request can be charged with.

All that is counted for such a request is counted again and again in process: the HTTP request, its preparation, its
batch. Once into memory, as a single process does, and once into the files of WEB_WORKERS=2 and more. A bare Flask
route, measured in the same turns, shows what the machine is worth.

    python benchmark/metrics_cost.py [--blocks 200] [--write benchmark/metrics_cost.md]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from flask import Flask, Response, request
from overhead import BARE, Figures, bare_app, measure, post
from prometheus_client import CollectorRegistry
from publishing import add_write, publish, when_and_where

from loaders import ModelHandle
from service.batching.tickets import BatchInfo, FlushReason
from service.metrics.batches import BatchMetrics
from service.metrics.families import counts_are_shared
from service.metrics.http import HttpMetrics

LIMIT_US = 40.0

HTTP = "the HTTP request"
BATCH = "its preparation and its batch"
BOTH = "all that is counted"


def figures_here(blocks: int) -> Figures:
    """CPU microseconds, one figure for each block."""
    bare, app = bare_app(), Flask("counted")
    app.add_url_rule("/predict", view_func=lambda: b"", methods=["POST"])
    registry = CollectorRegistry()
    http, batches = HttpMetrics(app, registry, lambda: None), BatchMetrics(registry)
    model = ModelHandle.from_callable(lambda rows: rows, name="empty")
    info = BatchInfo(
        batch_id=1,
        size=1,
        reason=FlushReason.LATENCY,
        started_at=0.0,
        model_s=0.003,
        runs=1,
        tokens=64,
        padded_length=64,
    )
    with app.test_request_context("/predict", method="POST"):
        now, answer = request._get_current_object(), Response()

        def count_http() -> None:
            http.count(now, answer, time.perf_counter())

        def count_batch() -> None:
            batches.preprocessed(model, 0.0002)
            batches.batch(model, info, (0.004,), ())

        def count_all() -> None:
            count_http()
            count_batch()

        return measure({BARE: lambda: post(bare), HTTP: count_http, BATCH: count_batch, BOTH: count_all}, blocks)


def figures_in_files(blocks: int) -> Figures:
    """The same in a process that counts into files."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--blocks", str(blocks), "--figures"]
        environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": directory}
        figures: Figures = json.loads(subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def table(title: str, figures: Figures) -> list[str]:
    return [
        "",
        f"| {title} | CPU µs per request, least | median |",
        "|---|---|---|",
        *(f"| {name} | {min(values):.1f} | {statistics.median(values):.1f} |" for name, values in figures.items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=200)
    add_write(parser)
    parser.add_argument("--figures", action="store_true", help="print the bare figures of this process as JSON")
    arguments = parser.parse_args()
    if arguments.figures:
        json.dump(figures_here(arguments.blocks), sys.stdout)
        return
    assert not counts_are_shared(), "unset PROMETHEUS_MULTIPROC_DIR"
    figures = {
        "one process": figures_here(arguments.blocks),
        "WEB_WORKERS=2 and more": figures_in_files(arguments.blocks),
    }
    text = "\n".join(
        [
            "# What counting costs",
            "",
            f"`python benchmark/metrics_cost.py --blocks {arguments.blocks}`: a request of one row that makes a batch "
            f"of its own; the limit is {LIMIT_US:.0f} µs. {when_and_where()}.",
            *(line for title, found in figures.items() for line in table(title, found)),
            "",
        ]
    )
    publish(text, arguments.write)
    if any(min(found[BOTH]) > LIMIT_US for found in figures.values()):
        sys.exit(f"counting costs more than {LIMIT_US} µs")


if __name__ == "__main__":
    main()
