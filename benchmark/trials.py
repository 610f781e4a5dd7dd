"""Running servers under load for the comparisons, and what came of it as rows of a table."""

from __future__ import annotations

import csv
import math
import os
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from service.bench.answers import Reference, ask_alone
from service.bench.bodies import Body
from service.bench.client import Client
from service.bench.made import made_bodies
from service.bench.measure import Measurement, measure
from service.bench.mix import Mix
from service.bench.own_server import own_server
from service.bench.pattern import Kind, Pattern

HERE = Path(__file__).parent
JITNEY, DIRECT = "served_models:app()", "direct_app:app()"
MOST_CONNECTIONS = 256

# What two short runs of the same may differ by on a machine that does other things too: smaller differences are none.
NOISE = 1.1
DISTINCT = 64

# The right answers by model, asked for once in a run: where a batch waits until it is full, each would take long.
_references: dict[str, Reference] = {}

# Nine texts in ten are short.
WORDS = Mix((*[(5, 15)] * 9, (60, 120)))

_NUMBERS = {"type": "array", "maxItems": 64, "items": {"type": "number"}}
_INSTANCES = {"dense": _NUMBERS, "decomposition": _NUMBERS, "transformer": {"title": "Text"}}


@dataclass(frozen=True, slots=True)
class Row:
    """One load on one server. `x`: what the comparison varies. Times in ms, CPU time of the server.

    `requests`: those that were sent, which the percentiles rest on.
    """

    model: str
    variant: str
    load: str
    x: float
    requests_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_batch_size: float
    cpu_ms_per_request: float
    padding_share: float
    requests: int
    errors: int
    wrong_answers: int


def bodies_for(model: str) -> list[Body]:
    described = {"components": {"schemas": {"Instance": _INSTANCES[model]}}}
    return made_bodies(described, count=DISTINCT, rows=Mix(((1, 1),)), words=WORDS, rng=random.Random(0))


class Trial:
    """One server under loads that follow each other."""

    def __init__(self, model: str, variant: str, client: Client, duration_s: float) -> None:
        self._model, self._variant, self._client, self._duration_s = model, variant, client, duration_s
        self._bodies = bodies_for(model)
        if model not in _references:
            _references[model] = ask_alone(self._bodies, client.predict)

    def closed(self, callers: int, x: float) -> Row:
        pattern = Pattern(Kind.CLOSED, self._duration_s, callers=callers)
        return self._row(pattern, "1 caller" if callers == 1 else f"{callers} callers", x)

    def poisson(self, rate_per_s: float, load: str, x: float) -> Row:
        return self._row(Pattern(Kind.POISSON, self._duration_s, rate_per_s=rate_per_s), load, x)

    def _row(self, pattern: Pattern, load: str, x: float) -> Row:
        done = measure(self._client, self._bodies, pattern, warm_up_s=0.5, reference=_references[self._model])
        row = _row_of(done, self._model, self._variant, load, x)
        shown = f"{row.requests_per_s:8.1f} requests/s, p50 {row.p50_ms:8.1f}, p99 {row.p99_ms:8.1f} ms"
        print(f"  {self._model:<14} {self._variant:<16} {load:<16} {shown}", file=sys.stderr, flush=True)
        return row


@contextmanager
def serving(model: str, variant: str, duration_s: float, *, app: str = JITNEY, **settings: object) -> Iterator[Trial]:
    """A server of its own; `settings` are environment variables in small letters."""
    environ = {
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
        "BENCH_MODEL": model,
        "SELF_CHECK": "off",
        # One core for the model's own threads, so that HTTP and the load have another.
        "OMP_NUM_THREADS": "1",
        **{name.upper(): value for name, value in settings.items()},
    }
    with own_server(environ, app=app) as url, Client(url, connections=MOST_CONNECTIONS) as client:
        yield Trial(model, variant, client, duration_s)


def median_of(rows: Sequence[Row]) -> Row:
    """Of repetitions of one load: the median of each figure, and all requests, errors and wrong answers."""
    figures = {
        field.name: statistics.median(getattr(row, field.name) for row in rows)
        for field in fields(Row)
        if isinstance(getattr(rows[0], field.name), float)
    }
    counts = {
        field.name: sum(getattr(row, field.name) for row in rows)
        for field in fields(Row)
        if isinstance(getattr(rows[0], field.name), int)
    }
    return replace(rows[0], **figures, **counts)


def write_csv(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _shown(value) for name, value in asdict(row).items()})


def _shown(value: object) -> object:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"


def _row_of(done: Measurement, model: str, variant: str, load: str, x: float) -> Row:
    clients, counted = done.clients, done.server.counted
    return Row(
        model=model,
        variant=variant,
        load=load,
        x=x,
        requests_per_s=clients.requests_per_s,
        p50_ms=clients.latency_ms.p50,
        p95_ms=clients.latency_ms.p95,
        p99_ms=clients.latency_ms.p99,
        mean_batch_size=math.nan if counted is None else counted.batch_size.mean,
        cpu_ms_per_request=math.nan if done.cpu_ms_per_request is None else done.cpu_ms_per_request,
        padding_share=math.nan if counted is None else counted.padding_share,
        requests=clients.requests,
        errors=sum(clients.errors.values()),
        wrong_answers=clients.wrong_answers,
    )
