"""An app whose model runs while the file that `GATE` names is there; it answers each row with its first number.

`BULK_BYTES` makes `/metrics` as long as that.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flask import jsonify
from prometheus_client import Gauge

from loaders import ModelHandle
from service import create_app

GATE = Path(os.environ["GATE"])


# A thread that the interpreter waits for at its end, as libraries of models have them.
pool = ThreadPoolExecutor(1)


def run(rows):
    return pool.submit(answers, rows).result()


def answers(rows):
    while GATE.exists():
        time.sleep(0.01)
    return [float(row[0]) for row in rows]


app = create_app(model_handle=ModelHandle.from_callable(run, name="gated"))
if "BULK_BYTES" in os.environ:
    Gauge("bulk", "x" * int(os.environ["BULK_BYTES"]), registry=app.extensions["jitney"].metrics.registry)


@app.get("/threads")
def threads():
    """How many threads there are, how much memory is in use, KiB, and how many files are open."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    files = len(os.listdir("/proc/self/fd"))
    return jsonify(threads=threading.active_count(), kib=int(status["VmRSS"].split()[0]), files=files)
