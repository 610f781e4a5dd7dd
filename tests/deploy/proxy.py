"""A real nginx in front of real servers, with the configuration of `deploy/nginx`, on ports of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from tests.system.conftest import ROOT, free_port

SHIPPED = ROOT / "deploy" / "nginx"
MAIN_FILES = ("nginx.conf", "replicas.conf", "canary.conf")
GUARD_S = 15.0

# Debian keeps it where the path of an ordinary user does not lead.
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@dataclass
class Proxy:
    """A running nginx. Its configuration is a copy of the shipped one below `home`."""

    process: subprocess.Popen[bytes]
    home: Path
    main_file: str
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **options: object) -> requests.Response:
        return requests.get(self.url + path, timeout=GUARD_S, **options)

    def predict(self, *rows: object, **options: object) -> requests.Response:
        return requests.post(f"{self.url}/predict", json={"instances": list(rows)}, timeout=GUARD_S, **options)

    def logged(self, count: int = 1) -> list[dict[str, str]]:
        """The lines of the access log, once there are so many of them."""
        log = self.home / "logs" / "jitney.log"
        wait_until(lambda: len(log.read_text().splitlines()) >= count, "lines of the access log")
        return [json.loads(line) for line in log.read_text().splitlines()]

    def errors(self) -> str:
        return (self.home / "logs" / "error.log").read_text()

    def reload(self) -> None:
        """Take the files as they are now; returns when nobody is served by the old ones any more."""
        before = workers(self.process.pid)
        told = run_nginx(self.home, self.main_file, "-s", "reload")
        assert told.returncode == 0, told.stderr
        wait_until(lambda: workers(self.process.pid) and not before & workers(self.process.pid), "new workers")


@contextmanager
def proxying(
    home: Path, main_file: str, servers: dict[str, Sequence[str]], changes: dict[str, dict[str, str]] | None = None
) -> Iterator[Proxy]:
    """Run nginx with `main_file` on a free port, ended with the block.

    servers: for files of `local/`, the addresses HOST:PORT that stand for the shipped ones, 127.0.0.1:8000 and then
    8001. changes: by file, texts to be replaced in the copy, each of which must be there.
    """
    port = free_port()
    configure(home, port, servers, changes or {})
    tested = run_nginx(home, main_file, "-t")
    assert tested.returncode == 0, tested.stderr
    process = subprocess.Popen(_command(home, main_file, "-g", "daemon off;"), stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_open(port), "nginx listens")
        yield Proxy(process, home, main_file, port)
    finally:
        process.terminate()
        process.wait(GUARD_S)


def configure(
    home: Path, port: int, servers: dict[str, Sequence[str]], changes: dict[str, dict[str, str]] | None = None
) -> None:
    """A copy of the shipped configuration in `home`, in which only that differs which is of this machine."""
    shutil.copytree(SHIPPED, home, dirs_exist_ok=True)
    (home / "logs").mkdir(exist_ok=True)
    as_root = "user root;\n" if os.geteuid() == 0 else ""  # else its processes could not write below `home`
    _replace(home / "local/process.conf", {"/run/": f"{home}/", "/var/log/nginx": f"{home}/logs"}, as_root)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {home}/temp/{kind};\n" for kind in kinds)
    (home / "temp").mkdir(exist_ok=True)
    unbuffered = {"/var/log/nginx": f"{home}/logs", " buffer=64k flush=1s": ""}
    _replace(home / "local/server.conf", {"listen 80 ": f"listen 127.0.0.1:{port} ", **unbuffered}, temporary)
    tls = {"listen 443 ": f"listen 127.0.0.1:{port} ", "/etc/nginx/tls": f"{home}/tls", **unbuffered}
    _replace(home / "local/server-tls.conf", tls, temporary)
    for name, addresses in servers.items():
        _replace(home / "local" / name, dict(zip(("127.0.0.1:8000", "127.0.0.1:8001"), addresses, strict=False)))
    for name, texts in (changes or {}).items():
        _replace(home / name, texts)


def run_nginx(home: Path, main_file: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(home, main_file, *options), capture_output=True, text=True, timeout=GUARD_S)


def wait_until(holds: Callable[[], object], what: str, guard_s: float = GUARD_S) -> None:
    deadline = time.monotonic() + guard_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {guard_s} s: {what}"
        time.sleep(0.02)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def address(url: str) -> str:
    return url.removeprefix("http://")


def workers(pid: int) -> set[int]:
    """The child processes of a process."""
    listings = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for listing in listings for child in listing.read_text().split()}


def raw(port: int, sent: bytes, guard_s: float = GUARD_S) -> bytes:
    """What is answered to bytes that no client library would send, until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=guard_s) as connection:
        connection.sendall(sent)
        answer = b""
        while received := connection.recv(65536):
            answer += received
        return answer


def _command(home: Path, main_file: str, *options: str) -> list[str]:
    return [str(NGINX), "-p", str(home), "-e", f"{home}/logs/error.log", "-c", str(home / main_file), *options]


def _replace(file: Path, texts: dict[str, str], before: str = "") -> None:
    text = file.read_text()
    for old, new in texts.items():
        assert old in text, f"{file.name} has no {old!r}"
        text = text.replace(old, new)
    file.write_text(before + text)
