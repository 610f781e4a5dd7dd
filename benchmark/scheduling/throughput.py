"""What a scheduler gives on a real model: many threads ask a `ThreadedBatcher` for one text after the other.

A closed loop: each caller sends its next text when it has its answer. Figures are of the time between the first
`WARM_UP_SHARE` of a run and its end, while all callers are at work.
"""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loaders import ModelHandle, load_model
from loaders.signature import TextInput
from scheduling.workload import text_lengths, text_of
from service import ThreadedBatcher
from service.batching.listeners import NullListener
from service.batching.schedulers import LearningScheduler, make_scheduler
from service.batching.tickets import BatchInfo, LaneName
from service.models.measuring import measure

# Of a run's time, how much passes before anything is counted.
WARM_UP_SHARE = 0.2

# How far an answer may be from that of the text alone, which padding does not change.
TOLERANCE = 1e-4

# A caller that waits longer than this ends the run: something is broken.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """One run. `tokens_per_row`: batch tokens by rows; `cpu_ms_per_row`: CPU time of the whole process, callers too."""

    model: str
    scheduler: str
    batch_size: int
    round: int
    rows: int
    rows_per_s: float
    p50_ms: float
    p99_ms: float
    mean_batch_rows: float
    tokens_per_row: float
    cpu_ms_per_row: float


class RealModel:
    """A text model, texts of mixed lengths that callers go through again and again, and its answer to each alone."""

    def __init__(self, path: str, *, texts: int, short_share: float, seed: int, name: str | None = None) -> None:
        self.handle: ModelHandle = load_model(path, name=name)
        self._input = self.handle.input
        assert isinstance(self._input, TextInput)
        assert self._input.encode is not None, "the model must come with a tokeniser"
        rng = random.Random(seed)
        self.texts = [self._input.encode(text_of(count, rng)) for count in text_lengths(texts, short_share, seed)]
        self.alone = [np.asarray(self.handle.predict_batch([text])[0]) for text in self.texts]

    def padded_length(self, key: object, longest: int) -> int:  # noqa: ARG002
        """To how many tokens the model pads a batch."""
        assert isinstance(self._input, TextInput)
        return self._input.padded_length(longest)

    def measure(
        self, scheduler: str, *, batch_size: int, clients: int, seconds: float, round_number: int
    ) -> Throughput:
        """One run of `clients` threads."""
        batches = _Batches()
        chooser = make_scheduler(scheduler)
        if isinstance(chooser, LearningScheduler):
            # As the warm-up of a service does.
            learn = partial(chooser.learn, LaneName(None))
            measure(self.handle, batch_size, lambda model, rows, _: model.predict_batch(rows), learn)
        with ThreadedBatcher(
            self.handle.predict_batch,
            max_batch_size=batch_size,
            scheduler=chooser,
            length_of=lambda text: len(text.ids),
            padded_length=self.padded_length,
            listener=batches,
        ) as batcher:
            callers = _Callers(self, batcher)
            with callers.at_work(clients):
                time.sleep(seconds * WARM_UP_SHARE)
                began, cpu_began = time.perf_counter(), time.process_time()
                time.sleep(seconds * (1 - WARM_UP_SHARE))
                ended, cpu_s = time.perf_counter(), time.process_time() - cpu_began
        latencies_s = [answered - asked for asked, answered in callers.calls if began <= answered < ended]
        assert latencies_s, "no answer came in time: let it run for longer"
        return Throughput(
            model=self.handle.name,
            scheduler=scheduler,
            batch_size=batch_size,
            round=round_number,
            rows=len(latencies_s),
            rows_per_s=round(len(latencies_s) / (ended - began), 2),
            p50_ms=round(1000 * statistics.median(latencies_s), 2),
            p99_ms=round(1000 * float(np.percentile(latencies_s, 99)), 2),
            mean_batch_rows=round(batches.rows / batches.count, 2),
            tokens_per_row=round(batches.tokens / batches.rows, 2),
            cpu_ms_per_row=round(1000 * cpu_s / len(latencies_s), 3),
        )


class _Batches(NullListener):
    """Adds up what the batches held."""

    def __init__(self) -> None:
        self.count = self.rows = self.tokens = 0

    def on_batch(self, info: BatchInfo, *_: Any) -> None:
        self.count += 1
        self.rows += info.size
        self.tokens += info.size * info.padded_length


class _Callers:
    """Threads that ask for one text after the other. `calls`: when each was asked for, and when it was answered."""

    def __init__(self, model: RealModel, batcher: ThreadedBatcher) -> None:
        self.calls: list[tuple[float, float]] = []
        self._model = model
        self._batcher = batcher
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads: Sequence[threading.Thread] = ()

    def at_work(self, clients: int) -> _Callers:
        """Used with `with`: they work inside the block, and have ended behind it."""
        self._threads = [threading.Thread(target=self._run, name=f"caller-{number}") for number in range(clients)]
        return self

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for failure in self._failures:
            raise failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                number = next(self._numbers) % len(self._model.texts)
                asked = time.perf_counter()
                (answer,) = self._batcher.submit([self._model.texts[number]], PATIENCE_S)
                self.calls.append((asked, time.perf_counter()))
                np.testing.assert_allclose(answer, self._model.alone[number], rtol=0, atol=TOLERANCE)
        except BaseException as error:
            self._failures.append(error)
            self._stop.set()
