"""A server of one's own to put load on: gunicorn in a process of its own, as it is deployed, on this machine alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from service.bench.errors import BenchError

# A large model on a busy machine.
START_LIMIT_S = 300.0
STOP_LIMIT_S = 45.0
_LOOK_EVERY_S = 0.05
_SHOWN_LOG_CHARS = 2000

# What ./.env may hold and must not count here: an empty variable is none. Nobody but this machine can ask.
_UNSET = dict.fromkeys(
    ("API_KEYS", "METRICS_KEY", "MODEL_REPOSITORY", "BATCH_SIZE_BUCKETS", "THREADS", "GUNICORN_CMD_ARGS"), ""
)

# A proxy that this machine asks the world through has no way to its own servers.
_urlopen = build_opener(ProxyHandler({})).open


class ServerFailed(BenchError):
    """The server did not start; the message ends with the end of its log."""


@contextmanager
def own_server(
    settings: Mapping[str, object], *, app: str = "service:create_app()", start_limit_s: float = START_LIMIT_S
) -> Iterator[str]:
    """Yields the URL of a server that is ready; it is stopped at the end, also when this process is told to stop.

    settings: environment variables; they win over those of this process, and over ./.env. Raises ServerFailed.
    """
    port = _free_port()
    environ = {
        **os.environ,
        **_UNSET,
        "WEB_WORKERS": "1",
        "LOG_LEVEL": "warning",
        **{name: str(value) for name, value in settings.items()},
        "BIND": f"127.0.0.1:{port}",
    }
    command = [sys.executable, "-m", "gunicorn", "-c", "python:service.gunicorn_config", app]
    with _ended_as_by_ctrl_c(), tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
        try:
            _wait_ready(process, f"http://127.0.0.1:{port}", start_limit_s, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(process)


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Also SIGTERM, and the end of the terminal, unwind the stack: no server may be left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only that one may decide on signals
        return

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, unwind) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def model_settings(model: Path) -> dict[str, object]:
    """What has a server serve this model file or bundle."""
    return {"MODEL_PATH": model.absolute(), "MODEL_NAME": "", "MODEL_VERSION": ""}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_ready(process: subprocess.Popen[bytes], url: str, limit_s: float, log: IO[bytes]) -> None:
    give_up_at = time.monotonic() + limit_s
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            with _urlopen(f"{url}/healthz", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(_LOOK_EVERY_S)
    ended = process.poll() is not None
    raise ServerFailed(f"the server {'has ended' if ended else f'was not ready after {limit_s:g} s'}:\n{_end_of(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")[-_SHOWN_LOG_CHARS:]
