"""Prometheus's own programs: promtool, and a server that scrapes every half second."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.system.conftest import ROOT, free_port

CONFIGURATIONS = ROOT / "deploy" / "prometheus"
RECORDING = CONFIGURATIONS / "recording.yml"
ALERTS = CONFIGURATIONS / "alerts.yml"

SCRAPE_S = 0.5
GUARD_S = 30.0


def rules(file: Path) -> list[dict[str, Any]]:
    """The rules of a file, in its order."""
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def recorded() -> set[str]:
    """The names that the recording rules make."""
    return {rule["record"] for rule in rules(RECORDING)}


def program(name: str) -> str:
    """Its path; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}, of Debian's package prometheus")
    return found


def promtool(*arguments: str | Path) -> str:
    """What it prints; a complaint fails the test."""
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class Prometheus:
    """A running Prometheus; everything it writes goes to `log`."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def ask(self, path: str, **parameters: Any) -> Any:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=10)
        body = answer.json()
        assert body["status"] == "success", f"{parameters}: {body.get('error')}"
        return body["data"]

    def samples(self, expression: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Labels and values; `at`: of which moment, a Unix time, now unless it is given."""
        data = self.ask("query", query=expression, **({} if at is None else {"time": at}))
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def value(self, expression: str, at: float | None = None) -> float | None:
        """That of the only sample; None where there is none."""
        found = self.samples(expression, at)
        assert len(found) <= 1, f"{expression} gives {len(found)} samples"
        return found[0][1] if found else None

    def wait_until(self, holds: Callable[[], bool], guard_s: float = GUARD_S) -> None:
        give_up_at = time.monotonic() + guard_s
        while time.monotonic() < give_up_at:
            assert self.process.poll() is None, f"Prometheus has ended:\n{self.log.read_text()}"
            try:
                if holds():
                    return
            except requests.RequestException:
                pass  # it does not listen yet
            time.sleep(0.05)
        pytest.fail(f"it did not come true within {guard_s} s; its log:\n{self.log.read_text()}")


@contextmanager
def scraping(directory: Path, *targets: tuple[str, dict[str, str]]) -> Iterator[Prometheus]:
    """A Prometheus with the shipped rules that scrapes each address, under the labels beside it."""
    configuration = yaml.safe_load((CONFIGURATIONS / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": f"{SCRAPE_S * 1000:.0f}ms", "evaluation_interval": "500ms"}
    configuration["rule_files"] = [str(CONFIGURATIONS / name) for name in configuration["rule_files"]]
    job = configuration["scrape_configs"][0]
    job["static_configs"] = [{"targets": [address], "labels": labels} for address, labels in targets]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    log, port = directory / "prometheus.log", free_port()
    command = [
        program("prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, cwd=directory, stdout=sink, stderr=subprocess.STDOUT)
    try:
        yield Prometheus(process, f"http://127.0.0.1:{port}", log)
    finally:
        process.terminate()
        try:
            process.wait(GUARD_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(GUARD_S)
