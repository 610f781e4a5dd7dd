"""Whether advice holds: a server with these settings, under the load that it is said to carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from service.bench.answers import ask_alone
from service.bench.bodies import Body
from service.bench.client import Client
from service.bench.measure import Measurement, Say, measure
from service.bench.pattern import Kind, Pattern
from service.tune.advice import Advice, threads_for
from service.tune.curve import Curve
from service.tune.learnt import BestBatch, learnt

# What is tried after a miss: this share of the rate; and, where the running batch and the own one could take more than
# this share of the latency, batches of half the size.
_STEP_DOWN = 0.7
_BATCH_SHARE = 0.5
MOST_ATTEMPTS = 6
_LEAST_RATE_PER_S = 1.0

# A 99th percentile of fewer requests says nothing.
LEAST_REQUESTS = 20

# As many as may wait while a batch runs that is slower than all before.
_CONNECTIONS = 512


class StartServer(Protocol):
    """Starts a server with some settings and yields its URL; see `service.bench.own_server`."""

    def __call__(self, settings: Mapping[str, object], /) -> AbstractContextManager[str]: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was tried and measured, and whether the 99th percentile stayed below what must be kept.

    `best_batches`: what the server's scheduler had learnt by then.
    """

    advice: Advice
    measured: Measurement
    kept: bool
    best_batches: Sequence[BestBatch] = ()


def attempts(
    advice: Advice,
    curve: Curve,
    slo_ms: float,
    bodies: Sequence[Body],
    start: StartServer,
    *,
    duration_s: float,
    say: Say,
) -> Iterator[Attempt]:
    """Try the advice; and as long as it does not hold, less load and smaller batches. The last one holds, or none did.

    bodies: of one row each. Raises BenchError.
    """
    reference = None
    for _ in range(MOST_ATTEMPTS):
        with start(advice.settings()) as url, Client(url, connections=_CONNECTIONS) as client:
            reference = reference or ask_alone(bodies, client.predict)
            pattern = Pattern(Kind.POISSON, duration_s, rate_per_s=advice.requests_per_s)
            measured = measure(client, bodies, pattern, reference=reference, say=say)
            best_batches = learnt(client)
        clients = measured.clients
        kept = clients.latency_ms.p99 <= slo_ms and not clients.errors and not clients.wrong_answers
        yield Attempt(advice, measured, kept, best_batches)
        if kept:
            return
        if not clients.requests:  # of still less load there would be nothing to tell either
            return
        is_batch_long = 2000 * curve.batch_s(advice.max_batch_size) > _BATCH_SHARE * slo_ms
        advice = _stepped_down(advice, clients.requests_per_s, smaller_batches=is_batch_long)


def _stepped_down(advice: Advice, answered_per_s: float, *, smaller_batches: bool) -> Advice:
    """Less load than was asked for, and than was answered: a server that was swamped has shown what it can do."""
    rate = max(_LEAST_RATE_PER_S, _STEP_DOWN * min(advice.requests_per_s, answered_per_s))
    rate = min(rate, advice.requests_per_s)
    size = max(1, advice.max_batch_size // 2) if smaller_batches else advice.max_batch_size
    threads = threads_for(size, rate, advice.p99_ms, advice.instances)
    return replace(advice, requests_per_s=rate, max_batch_size=size, threads=threads)
