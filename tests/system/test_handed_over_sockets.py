"""Listening sockets that somebody else has too: another master, or whoever started this one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from service.gunicorn_config import __name__ as configuration

pytestmark = pytest.mark.system

ECHO = 0
GUARD_S = 60.0


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def new_masters(server) -> list[int]:
    return [child for child in children(server.process.pid) if children(child)]


def upgrade(server) -> int:
    """Have the master replaced; the statuses of all probes meanwhile are 200. Returns the new one's number."""
    server.process.send_signal(signal.SIGUSR2)
    statuses = set()

    def both_serve() -> bool:
        statuses.add(server.get("/healthz").status_code)
        return server.text().count("is ready") == 2

    server.wait_until(both_serve, guard_s=GUARD_S)
    assert statuses == {200}
    (new,) = new_masters(server)
    return new


def test_a_new_master_takes_over_and_goes_on_when_the_old_one_has_stopped(start):
    server = start(LOAD_S=1)
    new = upgrade(server)
    try:
        assert server.stop() == 0
        assert [server.predict([ECHO, value], timeout=5).json()["predictions"] for value in range(3)] == [[0], [1], [2]]
    finally:
        os.kill(new, signal.SIGTERM)


def max_batch_sizes(server) -> set[int]:
    """What the processes say that answer; both masters' while there are two."""
    return {server.get("/status.json").json()["settings"]["max_batch_size"] for _ in range(8)}


def test_a_reload_reads_no_settings_and_says_so_and_a_new_master_reads_them(start, tmp_path):
    (tmp_path / ".env").write_text("MAX_BATCH_SIZE=3\nMETRICS_KEY=\n")
    server = start()
    assert max_batch_sizes(server) == {3}
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: server.text().count("is ready") == 2)
    assert server.text().count("settings are not: they stay those of the start") == 1
    assert "lines of .env have changed" not in server.text()

    (tmp_path / ".env").write_text("MAX_BATCH_SIZE=5\nMAX_QUEUE_SIZE=77\n")
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: server.text().count("is ready") == 3)
    assert 'count from the next start on, or after SIGUSR2: MAX_BATCH_SIZE, MAX_QUEUE_SIZE"' in server.text()
    server.wait_until(lambda: server.text().count("Worker exiting") == 2)
    assert max_batch_sizes(server) == {3}

    server.process.send_signal(signal.SIGUSR2)
    server.wait_until(lambda: server.text().count("is ready") == 4, guard_s=GUARD_S)
    (new,) = new_masters(server)
    try:
        assert server.stop() == 0
        assert max_batch_sizes(server) == {5}
    finally:
        os.kill(new, signal.SIGTERM)


def test_the_old_master_goes_on_when_the_new_one_is_taken_back(start):
    server = start(LOAD_S=1)
    os.kill(upgrade(server), signal.SIGTERM)
    server.wait_until(lambda: not new_masters(server))
    assert server.predict([ECHO, 1], timeout=5).json()["predictions"] == [1]
    assert server.stop() == 0


def run_with(listener: socket.socket, directory: Path, name: str) -> None:
    """Start a server on sockets that are handed to it as systemd does, have it predict, and stop it."""
    (directory / "model.bin").touch()
    here = Path(__file__).parent
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")]),
        "MODEL_PATH": str(directory / "model.bin"),
        "MODEL_FORMAT": "scripted",
        "LISTEN_FDS": "1",
    }
    # They begin at 3, and are meant for one process only.
    shell = f'export LISTEN_PID=$$; exec "$@" 3<&{listener.fileno()}'
    command = [sys.executable, "-m", "gunicorn", "-c", f"python:{configuration}", "scripted:app"]
    with (directory / name).open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", shell, "start", *command],
            env=environ,
            cwd=directory,
            pass_fds=[listener.fileno()],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        deadline = time.monotonic() + GUARD_S
        # It is asked only when it serves: until then the request would wait in the socket.
        while "is ready" not in (directory / name).read_text() and time.monotonic() < deadline:
            assert process.poll() is None, (directory / name).read_text()
            time.sleep(0.05)
        answer = requests.post(f"{url}/predict", json={"instances": [[ECHO, 1]]}, timeout=5)
        assert answer.json()["predictions"] == [1]
    finally:
        process.terminate()
        assert process.wait(GUARD_S) == 0


def test_sockets_that_are_kept_for_the_next_start_are_of_use_to_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        run_with(listener, tmp_path, "first.log")
        run_with(listener, tmp_path, "second.log")
