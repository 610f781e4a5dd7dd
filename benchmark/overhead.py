"""What a request costs above Flask itself: `POST /predict` of an empty model beside a route that returns a constant.

At first both are called as WSGI apps, with no server around them, in one process and in turns: short blocks of
requests, CPU time of all threads of the process. The least of many blocks is what the code costs; the median is what it
costs among whatever else runs on the machine. Everything is switched on: validation, ids, metrics, admission,
deadlines. One request at a time, so that nothing is shared among the rows of a batch. This is measured twice: with the
threads where the system puts them, and with all of them on one core in its batch class, where a thread that is woken
does not push aside the one that woke it.

Then through gunicorn, in the worker class that Jitney brings: CPU time of all processes of the server, with one caller
and with several, whose rows share batches. A change is judged by the ratios, which move less than the figures. What the
worker class adds to the app is measured on one thread, over a loopback connection.

    python benchmark/overhead.py [--blocks 200] [--policy window] [--write benchmark/overhead.md]
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flask import Flask
from publishing import add_write, publish, when_and_where
from served_overhead import BARE, OURS, ROW, WIDTH, bare_app, our_app, through_gunicorn
from server_part import SERVER, SYSTEM_CALLS, ServerPart

from service import Settings
from service.lane_key import LaneKey
from service.prediction import PredictCall, predict
from service.runtime import Runtime

BODY = json.dumps({"instances": [ROW]}).encode()

# Short, so that some of many blocks run undisturbed.
CALLS_PER_BLOCK = 40
WARM_UP_CALLS = 300
START_WAIT_S = 10.0

Part = Callable[[], object]
Figures = dict[str, list[float]]


def started_app(policy: str) -> Flask:
    """Jitney around a model that does nothing, started."""
    app = our_app(Settings(max_batch_latency_ms=0, batch_policy=policy))
    runtime: Runtime = app.extensions["jitney"]
    runtime.start()
    assert runtime.batcher().wait_started(START_WAIT_S)
    return app


def post(app: Flask) -> None:
    """One request as a WSGI server makes it."""
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/predict",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8000",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "127.0.0.1:8000",
        "HTTP_ACCEPT": "*/*",
        "HTTP_USER_AGENT": "benchmark",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(BODY)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(BODY),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }

    def start_response(status: str, headers: list[tuple[str, str]], error: Any = None) -> Any:
        assert status == "200 OK", (status, headers, error)

    answer: Any = app(environ, start_response)
    assert b"".join(answer)
    if hasattr(answer, "close"):
        answer.close()


def parts_of(ours: Flask) -> dict[str, Part]:
    """What is measured: both apps, and parts of ours from the outside to the inside."""
    bare, runtime = bare_app(), ours.extensions["jitney"]
    model = runtime.model
    call, row, key = PredictCall([ROW]), np.array(ROW), LaneKey(model, (), ("f", WIDTH))
    return {
        BARE: lambda: post(bare),
        OURS: lambda: post(ours),
        "of it checking, batching and presenting a row": lambda: predict(runtime, model, call),
        "of that the batcher, with the way to its thread and back": lambda: runtime.batcher().ask([row], key=key),
    }


def measure(parts: dict[str, Part], blocks: int) -> Figures:
    """CPU microseconds per call of each part, one figure for each block, in turns."""
    for call in parts.values():
        for _ in range(WARM_UP_CALLS):
            call()
    gc.collect()
    gc.freeze()  # what the imports have left is not to be looked through in the middle of a block
    figures: Figures = {name: [] for name in parts}
    for _ in range(blocks):
        for name, call in parts.items():
            began = time.process_time()
            for _ in range(CALLS_PER_BLOCK):
                call()
            figures[name].append((time.process_time() - began) / CALLS_PER_BLOCK * 1e6)
    return figures


def of_server(blocks: int) -> list[str]:
    """A table of what the worker class adds; on Linux, where it serves."""
    with ServerPart(BODY) as server:
        figures = measure({SERVER: server.request}, blocks)
        figures |= measure({SYSTEM_CALLS: server.system_calls()}, blocks)
    return [
        "",
        "| of the server, without threads | CPU µs per request, least | median |",
        "|---|---|---|",
        *(f"| {name} | {min(values):.1f} | {statistics.median(values):.1f} |" for name, values in figures.items()),
    ]


def on_one_core() -> None:
    """Put every thread of this process on one core, in the batch class."""
    core = min(os.sched_getaffinity(0))
    for thread in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(thread, {core})
        os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def table(title: str, figures: Figures) -> list[str]:
    least = {name: min(values) for name, values in figures.items()}
    median = {name: statistics.median(values) for name, values in figures.items()}
    return [
        "",
        f"| {title} | CPU µs per request, least | median |",
        "|---|---|---|",
        *(f"| {name} | {least[name]:.1f} | {median[name]:.1f} |" for name in figures),
        f"| ratio | {least[OURS] / least[BARE]:.2f} | {median[OURS] / median[BARE]:.2f} |",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5, help="through gunicorn, of each load")
    parser.add_argument("--seconds", type=float, default=2.0, help="through gunicorn, of each load in each round")
    parser.add_argument("--policy", choices=["window", "eager"], default="window")
    add_write(parser)
    arguments = parser.parse_args()
    # First of all: what this process starts later begins where this process has put itself.
    served = through_gunicorn(arguments.rounds, arguments.seconds)
    ours = started_app(arguments.policy)
    try:
        parts = parts_of(ours)
        tables = table("threads on any core", measure(parts, arguments.blocks))
        if hasattr(os, "sched_setaffinity"):
            on_one_core()
            tables += table("threads on one core", measure(parts, arguments.blocks))
            tables += of_server(arguments.blocks)
    finally:
        ours.extensions["jitney"].close()
    lines = [
        "# Overhead",
        "",
        f"`python benchmark/overhead.py --blocks {arguments.blocks} --policy {arguments.policy}`: one request at a "
        f"time with a row of {WIDTH} numbers, empty model, MAX_BATCH_LATENCY_MS=0; {arguments.blocks} blocks of "
        f"{CALLS_PER_BLOCK} requests in turns. Through gunicorn: default settings, medians of "
        f"{arguments.rounds} rounds of {arguments.seconds:g} s. {when_and_where()}.",
        *tables,
        *served,
        "",
        "The ratio of the first table is the machine's too: what it costs to wake a thread on another core changes",
        "with what else its host does. With all threads on one core, where `THREAD_PLACEMENT` puts them, nothing of",
        "that is measured.",
    ]
    text = "\n".join(lines) + "\n"
    publish(text, arguments.write)


if __name__ == "__main__":
    main()
