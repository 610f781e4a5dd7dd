"""Every fault there is, under load, and the proof that each request still had exactly one right end.

32 clients with kept connections send good, bad, slow and aborted requests to a real gunicorn, while the model is
swapped and killed and hangs, and processes are replaced and killed. Each request must end in its own right answer, in
the error that its kind or the fault of that moment explains, or with a connection that such a fault has closed; and
between the faults the counters of `/metrics` must add up to what the clients saw.

    python -m benchmark.endurance.fault_run [--seconds 120] [--workers 1] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.endurance.client import Client
from benchmark.endurance.counters import Counted, differences
from benchmark.endurance.crowd import Crowd
from benchmark.endurance.injections import ADMIN_TOKEN, INJECTIONS, MODEL, Injection, Scene
from benchmark.endurance.ledger import Ledger
from benchmark.endurance.prober import Prober
from benchmark.endurance.server import Server, running
from benchmark.endurance.traffic import Sent, any_of_mix

CLIENTS = 32
BATCH = 8
DEADLINE_S = 8.0

# Beside the deadline a request may have to wait for a process that takes its connection; a machine may be busy.
HANG_GUARD_S = DEADLINE_S + 40.0

# A batch, and a client that has left, are counted a moment later than they are seen from outside.
SETTLE_S = 10.0

# How long a client thinks between two requests, at most; and how long load runs around each fault.
THINK_S = 0.05
LOAD_S = 0.7

SETTINGS: dict[str, object] = {
    "MODEL_NAME": MODEL,
    "MAX_BATCH_SIZE": BATCH,
    "MAX_INSTANCES": 100,
    "MAX_QUEUE_SIZE": 256,
    "REQUEST_TIMEOUT_MS": DEADLINE_S * 1000,
    "GRACEFUL_TIMEOUT_S": DEADLINE_S + 2,
    "STALL_LIMIT_MS": 1500,
    "EXIT_ON_STALL": "true",
    "ADMIN_TOKEN": ADMIN_TOKEN,
}


@dataclass
class Report:
    """What a run has found. It is `clean` when there is nothing in `violations`."""

    workers: int
    took_s: float = 0.0
    requests: str = ""
    counted: str = ""
    readings: int = 0
    probes: int = 0
    away_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cost: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    violations: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        lines = [
            f"Fault run: {self.took_s:.0f} s, {CLIENTS} clients, {self.workers} worker process(es)",
            "",
            self.requests,
            "",
            f"{'fault':24}{'times':>6}{'whole again after, s':>24}   requests that ended because of it",
            *(
                f"{name:24}{len(took_s):>6}{f'{min(took_s):.1f} to {max(took_s):.1f}':>24}   {self._cost(name)}"
                for name, took_s in self.away_s.items()
            ),
            "",
            f"counters read {self.readings} times, the last: {self.counted}",
            f"/healthz said 200 before {self.probes} predictions",
            "",
            "clean" if self.clean else f"{len(self.violations)} violations:",
            *(f"  {count} x {what}" for what, count in Counter(self.violations).most_common(30)),
        ]
        return "\n".join(lines)

    def _cost(self, name: str) -> str:
        return ", ".join(f"{count} x {end}" for end, count in sorted(self.cost[name].items())) or "none"


def fault_run(directory: Path, *, seconds: float, workers: int, seed: int) -> Report:
    """Inject every fault at least once, and go on with that for `seconds`; leaves the server's log in `directory`."""
    repository = directory / "models"
    for version in ("1", "2"):
        bundle = repository / MODEL / version
        bundle.mkdir(parents=True)
        (bundle / "model.bin").touch()
        (bundle / "jitney.toml").write_text('[model]\nformat = "faulty"\nfile = "model.bin"\n')
    settings = {**SETTINGS, "MODEL_REPOSITORY": repository, "WEB_WORKERS": workers}
    with running("benchmark.endurance.faulty_model:app", directory, settings) as server:
        server.wait_ready(workers)
        return _Run(server, workers, random.Random(seed)).run(seconds)


class _Run:
    """One run on one server."""

    def __init__(self, server: Server, workers: int, rng: random.Random) -> None:
        self._server = server
        self._workers = workers
        self._rng = rng
        self._ledger = Ledger()
        self._report = Report(workers)
        self._clients: list[Client] = []
        self._prober = Prober(self._client(), self._ledger, rng)
        self._scene = Scene(server, workers, self._client(), self._ledger, rng)
        self._crowd = Crowd([self._prober, *(self._caller(number) for number in range(CLIENTS))])
        self._lost_rows = 0

    def run(self, seconds: float) -> Report:
        report, began = self._report, time.monotonic()
        self._crowd.start()
        try:
            while not report.took_s or report.took_s < seconds:
                for injection in INJECTIONS:
                    self._disturb(injection)
                report.took_s = time.monotonic() - began
        finally:
            if not self._crowd.stop(HANG_GUARD_S):
                report.violations.append("a client never came to its end")
            for client in self._clients:
                client.close()
        report.requests = self._ledger.table()
        report.violations += [*self._ledger.violations(), *self._prober.lies]
        report.probes = self._prober.asked
        for disturbance in self._ledger.disturbances:
            report.cost[disturbance.name] += self._ledger.cost(disturbance)
        return report

    def _disturb(self, injection: Injection) -> None:
        """One fault in the middle of load, and then everything is counted."""
        time.sleep(LOAD_S)
        disturbance = injection.inject(self._scene)
        self._lost_rows += BATCH if injection.kills else 0
        self._report.away_s[injection.name].append(disturbance.ended - disturbance.began)
        time.sleep(LOAD_S)
        with self._crowd.at_rest(HANG_GUARD_S) as all_idle:
            if not all_idle:
                self._report.violations.append(f"after {injection.name}: a request did not end")
            self._count(injection.name)

    def _count(self, after: str) -> None:
        """Compare the counters with what was seen, as soon as everything has been counted that will be."""
        give_up_at = time.monotonic() + SETTLE_S
        while True:
            _, page, process = self._server.get("/metrics")
            counted = Counted.read(page)
            found = differences(counted, self._seen_of(process), lost_rows=self._lost_rows)
            if not found or time.monotonic() > give_up_at:
                break
            time.sleep(0.1)
        self._report.readings += 1
        self._report.counted = str(counted)
        self._report.violations += [f"after {after}: {difference}" for difference in found]

    def _seen_of(self, process: int | None) -> list[Sent]:
        """The requests that the page speaks of: all where processes count together, else those of this process.

        Whose process is not known may have been any since the last fault began.
        """
        if self._workers > 1:
            return self._ledger.since(0.0)
        born = max((one.began for one in self._ledger.disturbances if one.closes), default=0.0)
        return [sent for sent in self._ledger.since(born) if sent.reply.process in (None, process)]

    def _client(self) -> Client:
        client = Client(self._server.host, self._server.port, HANG_GUARD_S)
        self._clients.append(client)
        return client

    def _caller(self, number: int) -> Callable[[], None]:
        client, rng = self._client(), random.Random(self._rng.random() + number)

        def request() -> None:
            self._ledger.add(any_of_mix(client, rng))
            time.sleep(rng.uniform(0.0, THINK_S))

        return request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = fault_run(Path(directory), seconds=arguments.seconds, workers=arguments.workers, seed=arguments.seed)
        print(report)
        if not report.clean:
            print((Path(directory) / "server.log").read_text(errors="replace")[-6000:], file=sys.stderr)
    sys.exit(not report.clean)


if __name__ == "__main__":
    main()
