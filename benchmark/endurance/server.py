"""A gunicorn with the repository's own configuration, started for one run and ended with it."""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
READY_GUARD_S = 90.0
STOP_GUARD_S = 30.0
PAUSE_S = 0.05


class NeverReady(Exception):
    """What was waited for did not come true; the text has the end of the server's log."""


@dataclass(frozen=True)
class Server:
    """A running server; everything it writes goes to `log`."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    log: Path

    def workers(self) -> set[int]:
        """The process ids of the worker processes."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return {int(pid) for pid in children.split()}

    def get(self, path: str) -> tuple[int, str, int | None]:
        """Status, body and answering process of a GET over a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=READY_GUARD_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            process = answer.headers.get("X-Process")
            return answer.status, answer.read().decode(), None if process is None else int(process)
        finally:
            connection.close()

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Return when `holds()`, which may fail as long as a process is being replaced; raises NeverReady."""
        give_up_at = time.monotonic() + READY_GUARD_S
        while time.monotonic() < give_up_at and self.process.poll() is None:
            try:
                if holds():
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(PAUSE_S)
        raise NeverReady(f"{what}; the end of the log:\n{self.log.read_text(errors='replace')[-4000:]}")

    def wait_ready(self, count: int, gone: Collection[int] = ()) -> None:
        """Return when there are `count` worker processes, none of them in `gone`, and each has said it is ready."""
        seen: set[int | None] = set()

        def all_are_ready() -> bool:
            workers = self.workers()
            if len(workers) != count or workers.intersection(gone):
                return False
            status, _, process = self.get("/healthz")
            if status == 200:
                seen.add(process or next(iter(workers)))
            return workers <= seen

        self.wait_until(all_are_ready, f"{count} worker processes were not ready in time")


@contextmanager
def running(app: str, directory: Path, settings: Mapping[str, object]) -> Iterator[Server]:
    """A server for `app` in `directory`, with `settings` as environment variables; ready when its processes say so."""
    port = _free_port()
    environ = {**os.environ, **{name: str(value) for name, value in settings.items()}}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environ["BIND"] = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "gunicorn", "-c", str(ROOT / "gunicorn.conf.py"), app]
    log = directory / "server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=environ, cwd=directory, stdout=sink, stderr=subprocess.STDOUT)
    server = Server(process, "127.0.0.1", port, log)
    try:
        yield server
    finally:
        _end(server)


def _end(server: Server) -> None:
    if server.process.poll() is not None:
        return
    workers = server.workers()
    server.process.terminate()
    try:
        server.process.wait(STOP_GUARD_S)
    except subprocess.TimeoutExpired:
        for pid in (server.process.pid, *workers):
            os.kill(pid, signal.SIGKILL)
        server.process.wait(STOP_GUARD_S)


def _free_port() -> int:
    """A port that nobody has, from below the range that outgoing connections take theirs from."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
