"""A demo model under moderate mixed load for ten minutes: does the server need more and more of anything?

Eight clients send rows of the digits model, alone and many at once, good and wrong ones, on kept connections and on new
ones, and some leave before they are answered. Every five seconds memory, threads, open files and the queue are read.
After the warm-up none may grow by more than a tenth, each answer must be the one that the same row got at the start,
and when the clients have gone nothing may be left in the queue.

    python -m benchmark.endurance.soak [--seconds 600] [--models demo-models]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmark.endurance.client import Client, End
from benchmark.endurance.crowd import Crowd
from benchmark.endurance.samples import GROWING, Sample, before_and_after, growths, in_use, table
from benchmark.endurance.server import Server, running
from service.demo.build import build, is_built
from service.demo.steps import console_report

CLIENTS = 8
GUARD_S = 60.0
SAMPLE_S = 5.0

# How long a client thinks between two requests, at most: about a hundred requests a second from all of them.
THINK_S = 0.15

IMAGES = 200
MAX_ROWS = 16


class Caller:
    """One client of the mix. *Thread:* one; `ends` may be read when it has ended."""

    def __init__(self, server: Server, rows: list[list[float]], answers: list[int], rng: random.Random) -> None:
        self._client = Client(server.host, server.port, GUARD_S)
        self._rows, self._answers, self._rng = rows, answers, rng
        self.ends: Counter[str] = Counter()

    def __call__(self) -> None:
        """One request, and what came of it."""
        rng, client = self._rng, self._client
        chosen = [rng.randrange(len(self._rows)) for _ in range(rng.choice([1, 1, 1, rng.randint(2, MAX_ROWS)]))]
        rows = [self._rows[number] for number in chosen]
        luck = rng.random()
        if luck < 0.05:
            client.abort(json.dumps({"instances": rows}).encode(), rng)
            self.ends["aborted"] += 1
        elif luck < 0.1:
            self._expect(client.predict({"instances": [rows[0][:-1]]}), 422, None)
        else:
            if luck < 0.15:
                client.close()
            self._expect(client.predict({"instances": rows}), 200, [self._answers[number] for number in chosen])
        time.sleep(rng.uniform(0.0, THINK_S))

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def _expect(self, reply: Any, status: int, predictions: list[int] | None) -> None:
        if reply.end is not End.ANSWERED or reply.status != status:
            self.ends[f"wrong: {reply.status or reply.end} instead of {status}"] += 1
        elif predictions is not None and reply.json()["predictions"] != predictions:
            self.ends["wrong: another answer than at the start"] += 1
        else:
            self.ends[str(status)] += 1


def soak(server: Server, seconds: float) -> tuple[list[Sample], Counter[str], list[str]]:
    """Load the server for so long; the samples, what became of the requests, and what was wrong."""
    from sklearn.datasets import load_digits

    rows = [image.tolist() for image in load_digits().data[:IMAGES]]
    answers = first_answers(server, rows)
    callers = [Caller(server, rows, answers, random.Random(number)) for number in range(CLIENTS)]
    crowd = Crowd(callers)
    samples: list[Sample] = []
    began = time.monotonic()
    crowd.start()
    while (left_s := began + seconds - time.monotonic()) > 0:
        threading.Event().wait(min(SAMPLE_S, left_s))
        samples.append(sample(server, time.monotonic() - began))
    faults = [] if crowd.stop(GUARD_S) else ["a client never came to its end"]
    ends: Counter[str] = Counter()
    for caller in callers:
        caller.close()
        ends += caller.ends
    faults += [f"{count} x {end}" for end, count in ends.items() if end.startswith("wrong")]
    faults += growths(samples)
    time.sleep(SAMPLE_S)
    if left := sample(server, time.monotonic() - began).queued:
        faults.append(f"{left} rows are left in the queue")
    return samples, ends, faults


def first_answers(server: Server, rows: list[list[float]]) -> list[int]:
    """What each row is answered with alone, when nobody else asks."""
    client = Client(server.host, server.port, GUARD_S)
    answers = [client.predict({"instances": [row]}).json()["predictions"][0] for row in rows]
    client.close()
    return answers


def sample(server: Server, at_s: float) -> Sample:
    """One look at the server's only worker process."""
    (pid,) = server.workers()
    sums: Counter[str] = Counter()
    for family in text_string_to_metric_families(server.get("/metrics")[1]):
        for one in family.samples:
            sums[one.name] += int(one.value) if one.name.startswith(("http_requests_total", "inference_queue_d")) else 0
    return Sample(at_s, *in_use(pid), sums["inference_queue_depth"], sums["http_requests_total"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--models", type=Path, default=Path("demo-models"), help="where the demo model is, or is built")
    arguments = parser.parse_args()
    if not is_built("digits", arguments.models):
        build(["digits"], arguments.models, console_report(terminal=False))
    settings = {"MODEL_PATH": (arguments.models / "digits").absolute(), "LOG_LEVEL": "warning"}
    with (
        tempfile.TemporaryDirectory() as directory,
        running("service:create_app()", Path(directory), settings) as server,
    ):
        server.wait_ready(1)
        samples, ends, faults = soak(server, arguments.seconds)
        print(table(samples))
        print("\nrequests: " + ", ".join(f"{count} x {end}" for end, count in sorted(ends.items())))
        for name in GROWING:
            before, after = before_and_after(samples, name)
            print(f"{name}: {before:.0f} after the warm-up, {after:.0f} at the end ({after / before - 1:+.1%})")
        print("steady" if not faults else "not steady: " + "; ".join(faults))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
