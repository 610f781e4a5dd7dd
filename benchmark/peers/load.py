"""Load from one process beside the server: wrk, which costs a tenth of a Python client, or that where wrk is missing.

On a machine of few cores the load takes its share from the server; which of the two it was stands beside the figures.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.peers.forms import Form
from benchmark.peers.workloads import Input
from service.bench.bodies import Body
from service.bench.client import Client
from service.bench.load import Load
from service.bench.result import result_of

WRK, CLIENT = "wrk", "jitney's bench client"
TIMEOUT_S = 60
_SCRIPT = Path(__file__).with_name("wrk.lua")


class LoadFailed(Exception):
    """The load could not be put on; the message says why."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What the callers saw. `requests`: all that were answered, with whatever status. NaN where there was none."""

    requests: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int
    load: str


def put_load(url: str, requests: Path, inputs: Sequence[Input], form: Form, callers: int, seconds: float) -> Clients:
    """`callers` that each wait for their answer before they ask again. requests: the folder with them, written out."""
    if shutil.which(WRK):
        return _by_wrk(url, requests, len(inputs), callers, seconds)
    return _by_client(url, inputs, form, callers, seconds)


def _by_wrk(url: str, requests: Path, count: int, callers: int, seconds: float) -> Clients:
    # wrk knows whole seconds alone.
    whole = max(1, round(seconds))
    # fmt: off
    command = [
        WRK, "--threads", "1", "--connections", str(callers), "--duration", f"{whole}s",
        "--timeout", f"{TIMEOUT_S}s", "--script", str(_SCRIPT), url, "--", str(requests), str(count),
    ]
    # fmt: on
    done = subprocess.run(command, capture_output=True, text=True, timeout=whole + TIMEOUT_S, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not told:
        raise LoadFailed(f"wrk ended with status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return read_wrk(told[-1])


def read_wrk(line: str) -> Clients:
    """What wrk's script has told at its end."""
    told = json.loads(line)
    good = told["requests"] - told["status"]
    return Clients(
        requests=told["requests"],
        requests_per_s=good / (told["lasted_us"] / 1e6),
        p50_ms=told["p50_us"] / 1000 if told["requests"] else math.nan,
        p99_ms=told["p99_us"] / 1000 if told["requests"] else math.nan,
        errors=told["refused"] + told["lost"] + told["status"] + told["timeout"],
        load=WRK,
    )


def _by_client(url: str, inputs: Sequence[Input], form: Form, callers: int, seconds: float) -> Clients:
    bodies = [Body(form.body(given), 1, form.content_type) for given in inputs]
    with client_for(url, form, callers) as client:
        load = Load(lambda number: client.predict(bodies[number]), len(bodies))
        load.closed(callers, seconds)
    result = result_of(load.exchanges, [1] * len(bodies), seconds)
    return Clients(
        requests=result.requests,
        requests_per_s=result.requests_per_s,
        p50_ms=result.latency_ms.p50,
        p99_ms=result.latency_ms.p99,
        errors=sum(result.errors.values()),
        load=CLIENT,
    )


def client_for(url: str, form: Form, callers: int) -> Client:
    """A client whose `predict` asks in this form."""
    return Client(f"{url}{form.path}", connections=callers, timeout_s=TIMEOUT_S, headers=form.headers)
