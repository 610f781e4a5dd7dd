"""One turn of one peer at one workload: started, checked, put under each load, and ended."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmark.peers import answers, load
from benchmark.peers.environments import REQUIREMENTS, Environment, InstallFailed, environment_for, own_environment
from benchmark.peers.forms import Form, Numbers
from benchmark.peers.models import NoModel, model_for, write_bodies, write_requests
from benchmark.peers.peer import Launch, Peer
from benchmark.peers.registry import PEERS
from benchmark.peers.rows import Row
from benchmark.peers.running import Running, ServerFailed, free_ports, running, server_environment
from benchmark.peers.workloads import Input, Workload

WARM_UP_CALLERS = 16
WARM_UP_S = 1.0

# The slowest of the raw model's loads, with its start.
_RAW_LIMIT_S = 240.0

FAULTS = (InstallFailed, NoModel, ServerFailed, answers.WrongAnswers, load.LoadFailed, subprocess.SubprocessError)


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked of a peer. `right`: the raw model's answers to `inputs`. folder: of models and environments."""

    workload: Workload
    inputs: Sequence[Input]
    right: Sequence[Numbers]
    levels: Sequence[int]
    seconds: float
    round: int
    folder: Path


def rows_of(peer: Peer, turn: Turn) -> list[Row]:
    """A row for each number of callers, or one that says why there is none; those before a fault stand beside it."""
    missing = why_missing(peer, turn.workload)
    if missing is not None:
        return [_blank(peer, turn, missing)]
    rows: list[Row] = []
    try:
        rows.extend(_raw(peer, turn) if peer.command is None else _served(peer, turn))
    except FAULTS as error:
        rows.append(_blank(peer, turn, str(error)))
    return rows


def why_missing(peer: Peer, workload: Workload) -> str | None:
    """None where the peer can be tried."""
    return peer.lacks() or (None if workload.name in peer.forms else peer.without_forms)


def right_answers(workload: Workload, inputs: Sequence[Input], folder: Path) -> list[Numbers]:
    """What the raw model says to each input, asked alone. Raises NoModel."""
    model_for(workload.name, folder / "models")
    told = _run_raw(workload, inputs, (), 0.0, folder)
    answered: list[Numbers] = json.loads(told[0])
    return answered


def machine() -> str:
    """This one, in a few words."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def _served(peer: Peer, turn: Turn) -> Iterator[Row]:
    environment = environment_of(peer, turn.folder)
    form = peer.forms[turn.workload.name]
    with _launch(environment, turn.workload, turn.folder) as launch, running(peer, launch) as server:
        url = f"http://127.0.0.1:{server.port}"
        answers.check(url, form, turn.inputs, turn.right, turn.workload.tolerance)
        requests = write_requests(turn.inputs, form, server.port, launch.scratch / "requests")
        load.put_load(url, requests, turn.inputs, form, WARM_UP_CALLERS, min(WARM_UP_S, turn.seconds))
        for callers in turn.levels:
            server.settle()
            yield _under_load(peer, turn, server, form, requests, callers)


def _under_load(peer: Peer, turn: Turn, server: Running, form: Form, requests: Path, callers: int) -> Row:
    before = server.cpu_times()
    seen = load.put_load(f"http://127.0.0.1:{server.port}", requests, turn.inputs, form, callers, turn.seconds)
    spent_s = server.cpu_times().since(before)
    return Row(
        workload=turn.workload.name,
        peer=peer.name,
        callers=callers,
        round=turn.round,
        requests_per_s=seen.requests_per_s,
        p50_ms=seen.p50_ms,
        p99_ms=seen.p99_ms,
        cpu_ms_per_request=math.nan if spent_s is None or not seen.requests else 1000 * spent_s / seen.requests,
        errors=seen.errors,
        seconds=turn.seconds,
        load=seen.load,
        version=version_of(peer, turn.folder),
        machine=machine(),
        measured_on=str(datetime.date.today()),
    )


def _raw(peer: Peer, turn: Turn) -> Iterator[Row]:
    told = _run_raw(turn.workload, turn.inputs, turn.levels, turn.seconds, turn.folder)
    for callers, line in zip(turn.levels, told[1:], strict=True):
        found = json.loads(line)
        yield Row(
            workload=turn.workload.name,
            peer=peer.name,
            callers=callers,
            round=turn.round,
            requests_per_s=found["requests_per_s"],
            p50_ms=found["p50_ms"],
            p99_ms=found["p99_ms"],
            cpu_ms_per_request=1000 * found["cpu_s"] / found["requests"],
            seconds=turn.seconds,
            load="none",
            machine=machine(),
            measured_on=str(datetime.date.today()),
        )


def _run_raw(
    workload: Workload, inputs: Sequence[Input], levels: Sequence[int], seconds: float, folder: Path
) -> list[str]:
    """The lines that `servers/raw.py` writes. Raises ServerFailed."""
    with _launch(own_environment(), workload, folder) as launch:
        bodies = write_bodies(inputs, PEERS["raw"].forms[workload.name], launch.scratch / "bodies")
        command = launch.script("raw.py", str(bodies), str(seconds), *map(str, levels))
        environ = server_environment(launch, {})
        limit_s = _RAW_LIMIT_S + len(levels) * 2 * seconds
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode:
        raise ServerFailed(f"the raw model has failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.splitlines()


@contextmanager
def _launch(environment: Environment, workload: Workload, folder: Path) -> Iterator[Launch]:
    with tempfile.TemporaryDirectory(prefix="jitney-peers-") as scratch:
        yield Launch(environment, workload, free_ports(), Path(scratch), folder / "models")


def environment_of(peer: Peer, folder: Path) -> Environment:
    """Where the peer's packages are, installed now where they are not yet. Raises InstallFailed."""
    if not peer.has_own_packages:
        return own_environment()
    return environment_for(REQUIREMENTS / f"{peer.name}.txt", folder / "environments", peer.interpreter)


def version_of(peer: Peer, folder: Path) -> str:
    """Of the peer's packages, with their names where there are several."""
    environment = environment_of(peer, folder)
    return ", ".join(f"{package} {environment.version(package)}" for package in peer.packages)


def _blank(peer: Peer, turn: Turn, fault: str) -> Row:
    return Row(
        workload=turn.workload.name,
        peer=peer.name,
        callers=0,
        round=turn.round,
        machine=machine(),
        measured_on=str(datetime.date.today()),
        fault=fault,
    )


def _processor() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()
