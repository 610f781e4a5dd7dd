"""A peer's server: in a process group of its own, ready when it has answered, ended with all that it started."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

from benchmark.peers.peer import SERVERS, Launch, Peer
from service.bench.server_cpu import CpuTimes, cpu_times_of
from service.cpu_threads import POOL_VARIABLES

# TorchServe starts Java, which starts Python, which imports torch.
START_LIMIT_S = 120.0
STOP_LIMIT_S = 15.0
_LOOK_EVERY_S = 0.1

# After a load some servers work off what was still waiting; below this much of a core they are done.
_IDLE_SHARE = 0.05
_DRAIN_LIMIT_S = 15.0
_DRAIN_LOOK_S = 0.3

# Servers with several addresses take the ports that follow.
PORTS = 5

_SHOWN_LOG_LINES = 3


class ServerFailed(Exception):
    """The server did not start, or ended; the message has the last words of its log."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is ready."""

    process: subprocess.Popen[bytes]
    port: int

    def cpu_times(self) -> CpuTimes:
        """Of all its processes. Raises ServerFailed when there are none left."""
        times = cpu_times_of({self.process.pid})
        if times is None:
            raise ServerFailed("the server has ended")
        return times

    def settle(self) -> None:
        """Return when it has nothing left to do, or does not come to an end."""
        give_up_at = time.monotonic() + _DRAIN_LIMIT_S
        while time.monotonic() < give_up_at:
            before = self.cpu_times()
            time.sleep(_DRAIN_LOOK_S)
            spent_s = self.cpu_times().since(before)
            if spent_s is not None and spent_s <= _IDLE_SHARE * _DRAIN_LOOK_S:
                return


@contextmanager
def running(peer: Peer, launch: Launch) -> Iterator[Running]:
    """The peer's server for one workload. Raises ServerFailed."""
    assert peer.command is not None, "the raw model has no server"
    log = launch.scratch / "server.log"
    environ = server_environment(launch, peer.environ(launch))
    with log.open("wb") as sink:
        process = subprocess.Popen(
            peer.command(launch),
            env=environ,
            cwd=launch.scratch,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_ready(process, peer, launch, log)
        yield Running(process, launch.port)
    finally:
        _end(process)


def server_environment(launch: Launch, own: Mapping[str, str]) -> dict[str, str]:
    """What every server is given, and `own`: the same native threads, and nothing of what runs it."""
    threads = dict.fromkeys(POOL_VARIABLES, str(launch.workload.native_threads))
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
        **threads,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(SERVERS),
        "PEER_WORKLOAD": launch.workload.name,
        "PEER_MODELS": str(launch.models),
        "PEER_MAX_BATCH_SIZE": str(launch.workload.max_batch_size),
        "PEER_WINDOW_MS": str(launch.workload.window_ms),
        **own,
    }


def free_ports() -> int:
    """A port that nobody has, and as many after it; from below the range that outgoing connections take theirs from."""
    while True:
        first = random.randrange(15_000, 32_000 - PORTS)
        if all(_is_free(first + more) for more in range(PORTS)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _wait_ready(process: subprocess.Popen[bytes], peer: Peer, launch: Launch, log: Path) -> None:
    """Ready is who has answered the first input: a port that listens says little of a model behind it."""
    form = peer.forms[launch.workload.name]
    headers = {"Content-Type": form.content_type, **form.headers}
    body = form.body(launch.workload.inputs()[0])
    request = Request(f"http://127.0.0.1:{launch.port}{form.path}", data=body, headers=headers)
    give_up_at = time.monotonic() + START_LIMIT_S
    said = "nothing listens"
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            with urlopen(request, timeout=START_LIMIT_S):
                return
        except (OSError, HTTPException) as error:  # the second: what listens there does not speak HTTP yet
            said = str(error)
            time.sleep(_LOOK_EVERY_S)
    what = "has ended" if process.poll() is not None else f"was not ready after {START_LIMIT_S:.0f} s ({said})"
    raise ServerFailed(f"the server {what}: {_last_words(log)}")


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-_SHOWN_LOG_LINES:]) or "its log is empty"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End its whole family: who does not go when it is asked is killed, by its id."""
    family = cpu_times_of({process.pid})
    started = frozenset() if family is None else family.processes
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid, start in started:
        # Who has left the group, and has lost its parent, has its id and its start still.
        left = cpu_times_of({pid})
        if left is not None and (pid, start) in left.processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
