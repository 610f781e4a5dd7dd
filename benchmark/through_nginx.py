"""How many predictions a second come through nginx, beside those that are asked for directly.

The digits model behind gunicorn, and nginx with `deploy/nginx/nginx.conf` before it; wrk keeps 64 connections busy,
against the one and against the other in turns. The medians of the rounds are compared; CPU time beside them, which
holds on a noisy machine better than predictions per second.

    PYTHONPATH=. python benchmark/through_nginx.py [--rounds 9] [--seconds 4] [--write benchmark/through_nginx.md]

It needs nginx and wrk, both packages of Debian.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from publishing import add_write, publish, when_and_where

from service.demo.build import build, is_built
from service.demo.steps import console_report
from tests.deploy.proxy import address, proxying, workers
from tests.system.conftest import starting

CONNECTIONS = 64
WARM_UP_S = 2
GUARD_S = 60
PICTURE = [pixel % 17 for pixel in range(64)]
# The tests read the log at once, and have it unbuffered.
AS_SHIPPED = {"local/server.conf": {" jitney;": " jitney buffer=64k flush=1s;"}}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{body}'
"""


@dataclass
class Way:
    """How the service is asked. `pids`: the processes between wrk and the answer."""

    name: str
    url: str
    pids: Sequence[int]
    per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def measure(self, script: Path, seconds: int) -> None:
        before_s = cpu_s(self.pids)
        per_s, count = run_wrk(self.url, script, seconds)
        self.per_s.append(per_s)
        self.cpu_us.append((cpu_s(self.pids) - before_s) / count * 1e6)

    def row(self) -> str:
        middle, least, most = statistics.median(self.per_s), min(self.per_s), max(self.per_s)
        return f"| {self.name} | {middle:.0f} | {least:.0f} | {most:.0f} | {statistics.median(self.cpu_us):.0f} |"


def cpu_s(pids: Sequence[int]) -> float:
    """CPU time that processes have used so far."""
    used = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids)
    return sum(int(ticks) for both in used for ticks in both) / TICKS_PER_S


def run_wrk(url: str, script: Path, seconds: int) -> tuple[float, int]:
    """Predictions per second, and how many; raises RuntimeError when a single answer is not 200."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "-s", str(script)]
    command.append(f"{url}/predict")
    told = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GUARD_S, check=True).stdout
    if "Non-2xx" in told or "Socket errors" in told:
        raise RuntimeError(f"not every answer was 200:\n{told}")
    return float(re.findall(r"Requests/sec:\s+([\d.]+)", told)[0]), int(re.findall(r"(\d+) requests in", told)[0])


def measure(rounds: int, seconds: int, directory: Path) -> list[Way]:
    models = Path("demo-models") if is_built("digits", Path("demo-models")) else directory
    if not is_built("digits", models):
        build(["digits"], models, console_report(terminal=False))
    script = directory / "post.lua"
    script.write_text(SCRIPT.format(body=json.dumps({"instances": [PICTURE]})))
    with starting(directory) as start:
        model = (models / "digits").resolve()
        server = start(app="service:create_app()", MODEL_PATH=model, MODEL_FORMAT="", LOG_LEVEL="warning")
        places = {"servers.conf": [address(server.url)]}
        with proxying(directory / "nginx", "nginx.conf", places, AS_SHIPPED) as proxy:
            served = sorted(workers(server.process.pid))
            direct = Way("direct", server.url, served)
            through = Way("through nginx", proxy.url, [*served, *workers(proxy.process.pid)])
            for way in (direct, through):
                run_wrk(way.url, script, WARM_UP_S)
            for _ in range(rounds):
                for way in (direct, through):
                    way.measure(script, seconds)
            return [direct, through]


def report(ways: list[Way], rounds: int, seconds: int) -> str:
    direct, through = ways
    share = statistics.median(through.per_s) / statistics.median(direct.per_s)
    return "\n".join(
        [
            "# Through nginx",
            "",
            f"`PYTHONPATH=. python benchmark/through_nginx.py --rounds {rounds} --seconds {seconds}`: digits model, "
            f"{CONNECTIONS} connections of wrk, {rounds} rounds of {seconds} s in turns; server, nginx and wrk share "
            f"the machine. {when_and_where(len(os.sched_getaffinity(0)))}, load "
            f"average at the end {os.getloadavg()[0]:.0f}.",
            "",
            "| | predictions per second, median | least | most | CPU µs per prediction, server and nginx |",
            "|---|---|---|---|---|",
            *(way.row() for way in ways),
            "",
            f"Through nginx: {share:.0%} of direct.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=4, help="of each round and way")
    add_write(parser, "report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        ways = measure(options.rounds, options.seconds, Path(directory))
    text = report(ways, options.rounds, options.seconds)
    publish(text, options.write)


if __name__ == "__main__":
    main()
