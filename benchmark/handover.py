"""What it costs to hand a row to the worker thread and to be woken with its result, beside a bare hand-over.

Both sides do the same work, an empty model on batches of up to 32 rows from 64 threads, one row at a time:
`ThreadedBatcher.submit`, and a `queue.Queue` whose worker collects up to 32 items, or what came within the same
latency, and sets an `Event` for each. They take turns, and the medians are compared: CPU time per row (all threads of
the process), which holds on a noisy machine better than time on the clock.

    python benchmark/handover.py [--rounds 7] [--write benchmark/handover.md]
"""

from __future__ import annotations

import argparse
import queue
import statistics
import threading
import time
from collections.abc import Callable

from publishing import add_write, publish, when_and_where

from service import ThreadedBatcher

THREADS = 64
BATCH = 32
LATENCY_S = 0.005
ROWS_PER_THREAD = 250


class BareHandover:
    """The least that hands an item to another thread in batches: no deadline, no count, no failure, no close."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[list[object], threading.Event] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> BareHandover:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()

    def submit(self, rows: list[object]) -> list[object]:
        event = threading.Event()
        self._queue.put((rows, event))
        event.wait()
        return rows

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            batch = [item]
            deadline = time.monotonic() + LATENCY_S
            while len(batch) < BATCH:
                try:
                    item = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    break
                if item is None:
                    return
                batch.append(item)
            for _, event in batch:
                event.set()


def cpu_us_per_row(submit: Callable[[list[object]], object]) -> float:
    """CPU microseconds per row when all threads submit one row after the other."""

    def caller() -> None:
        for number in range(ROWS_PER_THREAD):
            submit([number])

    threads = [threading.Thread(target=caller) for _ in range(THREADS)]
    began = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.process_time() - began) / (THREADS * ROWS_PER_THREAD) * 1e6


def measure(rounds: int) -> dict[str, list[float]]:
    """CPU microseconds per row of both, `rounds` times each, in turns; one round of each before that is not counted."""
    figures: dict[str, list[float]] = {"bare queue.Queue + Event": [], "ThreadedBatcher.submit": []}
    for number in range(rounds + 1):
        with BareHandover() as bare:
            one = cpu_us_per_row(bare.submit)
        with ThreadedBatcher(lambda rows: rows, max_batch_size=BATCH, max_batch_latency_s=LATENCY_S) as batcher:
            other = cpu_us_per_row(batcher.submit)
        if number:
            for name, figure in zip(figures, (one, other), strict=True):
                figures[name].append(figure)
    return figures


def report(figures: dict[str, list[float]], rounds: int) -> str:
    medians = {name: statistics.median(values) for name, values in figures.items()}
    bare, batcher = medians.values()
    lines = [
        "# Hand-over",
        "",
        f"`python benchmark/handover.py --rounds {rounds}`: {THREADS} threads, batches of up to {BATCH} rows, empty "
        f"model, {rounds} rounds in turns. {when_and_where()}.",
        "",
        "| | CPU µs per row, median | least | most |",
        "|---|---|---|---|",
        *(
            f"| {name} | {medians[name]:.1f} | {min(values):.1f} | {max(values):.1f} |"
            for name, values in figures.items()
        ),
        "",
        f"Ratio of the medians: {batcher / bare:.2f}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    add_write(parser, "table")
    arguments = parser.parse_args()
    text = report(measure(arguments.rounds), arguments.rounds)
    publish(text, arguments.write)


if __name__ == "__main__":
    main()
