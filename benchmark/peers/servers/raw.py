"""The model in this process with nothing around it: what a server without any cost of its own would give.

As many inputs as there are callers come at once, again and again, as bodies; they are decoded, predicted in batches and
encoded. A latency counts from then until the batch is done. Writes a line of JSON for each number of callers; before
them, the answers to all bodies.

    python raw.py BODIES_FOLDER SECONDS CALLERS...
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import work


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def endless(bodies: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from bodies


def batches_of(bodies: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(bodies), work.MAX_BATCH_SIZE):
        yield bodies[start : start + work.MAX_BATCH_SIZE]


def run(model: work.Model, bodies: list[bytes], callers: int, seconds: float) -> dict[str, float]:
    coming = endless(bodies)
    latencies_ms: list[float] = []
    began, cpu_began = time.perf_counter(), cpu_s()
    while time.perf_counter() - began < seconds:
        asked = time.perf_counter()
        for batch in batches_of(list(islice(coming, callers))):
            for row in model.predict([model.decode(body) for body in batch]):
                work.encode(row)
            latencies_ms += [1000 * (time.perf_counter() - asked)] * len(batch)
    lasted_s, spent_s = time.perf_counter() - began, cpu_s() - cpu_began
    latencies_ms.sort()
    return {
        "requests": len(latencies_ms),
        "requests_per_s": len(latencies_ms) / lasted_s,
        "p50_ms": latencies_ms[math.ceil(0.5 * len(latencies_ms)) - 1],
        "p99_ms": latencies_ms[math.ceil(0.99 * len(latencies_ms)) - 1],
        "cpu_s": spent_s,
    }


def main() -> None:
    folder, seconds, callers = Path(sys.argv[1]), float(sys.argv[2]), list(map(int, sys.argv[3:]))
    model = work.load()
    bodies = [path.read_bytes() for path in sorted(folder.iterdir())]
    answers = [model.predict([model.decode(body)])[0].tolist() for body in bodies]
    print(json.dumps(answers), flush=True)
    for count in callers:
        run(model, bodies, count, min(1.0, seconds))  # buffers and thread pools grow with the batch
        print(json.dumps(run(model, bodies, count, seconds)), flush=True)


if __name__ == "__main__":
    main()
