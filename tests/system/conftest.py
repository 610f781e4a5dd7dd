"""Real servers: gunicorn with the repository's own configuration, on a free port, ended with the test."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

ROOT = Path(__file__).parents[2]
START_GUARD_S = 120.0
STOP_GUARD_S = 20.0


@dataclass
class Server:
    """A running gunicorn; everything it writes goes to `log`."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def get(self, path: str, timeout: float = 10.0) -> requests.Response:
        return requests.get(self.url + path, timeout=timeout)

    def post(self, body: object, path: str = "/predict", timeout: float = 30.0) -> requests.Response:
        return requests.post(self.url + path, json=body, timeout=timeout)

    def predict(self, *rows: object, timeout: float = 30.0) -> requests.Response:
        return self.post({"instances": list(rows)}, timeout=timeout)

    def wait_until(self, holds: Callable[[], bool], guard_s: float = START_GUARD_S) -> None:
        deadline = time.monotonic() + guard_s
        while time.monotonic() < deadline:
            try:
                if holds():
                    return
            except requests.RequestException:
                assert self.process.poll() is None, f"the server has ended:\n{self.text()}"
            time.sleep(0.02)
        pytest.fail(f"it did not come true within {guard_s} s; the server's log:\n{self.text()}")

    def wait_listening(self, guard_s: float = 300.0) -> None:
        """The command that starts the server may have much to do first."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        deadline = time.monotonic() + guard_s
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.05)
        pytest.fail(f"nothing listens at {self.url}; the log:\n{self.text()}")

    def wait_ready(self) -> None:
        self.wait_until(lambda: self.get("/healthz").status_code == 200)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(STOP_GUARD_S)

    def busy(self) -> bool:
        """A batch is in the model: rows were admitted, and none of them waits."""
        before = self.metric("inference_preprocess_seconds_count")
        return before > self.metric("inference_rows_total") and self.metric("inference_queue_depth") == 0

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def metric(self, name: str) -> float:
        """The sum over all series of one sample name."""
        lines = [line for line in self.get("/metrics").text.splitlines() if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


def free_port() -> int:
    """A port that nobody has, from below the range that outgoing connections take theirs from."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


Start = Callable[..., Server]


@contextmanager
def starting(directory: Path) -> Iterator[Start]:
    """Starts servers: `start(app="scripted:app", LOAD_S=2)`; keyword arguments are environment variables.

    They run in `directory`, and are ended with the block.
    """
    servers: list[Server] = []

    def start_server(*gunicorn_args: str, app: str = "scripted:app", wait: bool = True, **settings: object) -> Server:
        port = free_port()
        model = directory / "model.bin"
        model.touch()
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
            "BIND": f"127.0.0.1:{port}",
            "MODEL_PATH": str(model),
            "MODEL_FORMAT": "scripted",
            **{name: str(value) for name, value in settings.items()},
        }
        log = directory / f"server-{len(servers)}.log"
        command = [sys.executable, "-m", "gunicorn", "-c", str(ROOT / "gunicorn.conf.py"), *gunicorn_args, app]
        with log.open("wb") as sink:
            process = subprocess.Popen(command, env=environ, cwd=directory, stdout=sink, stderr=subprocess.STDOUT)
        server = Server(process, f"http://127.0.0.1:{port}", log)
        servers.append(server)
        if wait:
            server.wait_ready()
        return server

    try:
        yield start_server
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.process.terminate()
                try:
                    server.process.wait(STOP_GUARD_S)
                except subprocess.TimeoutExpired:
                    server.process.kill()
                    server.process.wait(STOP_GUARD_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers for one test, in its own directory; see `starting`."""
    with starting(tmp_path) as start_server:
        yield start_server


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """As long as this file is there, the model of `gated.py` keeps what it is given."""
    return tmp_path / "gate"


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure no coverage in the processes that the test starts, which makes them a third faster.

    For those with much to do, and nothing of Jitney's that no other test has a measured process do.
    """
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        monkeypatch.delenv(name, raising=False)
