"""One measurement: answers to compare with, a warm-up, the load, and what the server counted meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from service.bench.answers import TOLERANCE, Reference, ask_alone
from service.bench.bodies import Body
from service.bench.client import Client, is_local
from service.bench.load import Load
from service.bench.pattern import Kind, Pattern
from service.bench.result import LoadResult, result_of
from service.bench.scraped import Scrape
from service.bench.server_cpu import CpuTimes, cpu_times

Say = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class ServerSide:
    """`counted`: None where `/metrics` cannot be read, or began anew meanwhile.

    `cpu_s`: None where the server is on another machine, or was started again.
    """

    counted: Scrape | None
    cpu_s: float | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """`distinct_answers`: of the bodies, asked alone; where it is 1, a wrong answer could hardly have been seen.

    `has_steady_answers`: False where a body asked alone twice got two answers, so that none can be called wrong.
    """

    pattern: Pattern
    clients: LoadResult
    server: ServerSide
    distinct_answers: int
    has_steady_answers: bool = True

    @property
    def cpu_ms_per_request(self) -> float | None:
        """Of the server, for each request that it was sent, whatever the answer."""
        if self.server.cpu_s is None or not self.clients.requests:
            return None
        return self.server.cpu_s * 1000 / self.clients.requests


def measure(
    client: Client,
    bodies: Sequence[Body],
    pattern: Pattern,
    *,
    warm_up_s: float = 1.0,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    reference: Reference | None = None,
    say: Say = lambda _message, _fraction: None,
) -> Measurement:
    """Put the load on and tell what came of it. Raises NoReference.

    reference: the right answers, where they are known already.
    """
    if reference is None:
        say("asking for each body alone", None)
        reference = ask_alone(bodies, client.predict, tolerance)
    _warm_up(client, bodies, pattern, warm_up_s, say)
    load = Load(
        lambda body: client.predict(bodies[body]),
        len(bodies),
        connections=client.connections,
        patience_s=client.timeout_s,
        check=reference.agrees,
        progress=lambda fraction: say(f"measuring, {pattern}", fraction),
    )
    before, spent_before = _scrape(client), _spent(client)
    pattern.run(load, random.Random(seed))
    spent, after = _spent(client), _scrape(client)
    server = ServerSide(
        counted=None if before is None or after is None else after.since(before),
        cpu_s=None if spent is None or spent_before is None else spent.since(spent_before),
    )
    result = result_of(load.exchanges, [body.rows for body in bodies], pattern.duration_s)
    return Measurement(pattern, result, server, reference.distinct, reference.is_steady)


def _warm_up(client: Client, bodies: Sequence[Body], pattern: Pattern, warm_up_s: float, say: Say) -> None:
    """The same load for a while, not counted; recorded times, which may begin with a pause, as a closed loop."""
    if warm_up_s <= 0:
        return
    kind = Kind.CLOSED if pattern.kind is Kind.REPLAY else pattern.kind
    load = Load(
        lambda body: client.predict(bodies[body]),
        len(bodies),
        connections=client.connections,
        patience_s=client.timeout_s,
        progress=partial(say, f"warming up for {warm_up_s:g} s"),
    )
    replace(pattern, kind=kind, duration_s=warm_up_s).run(load, random.Random(0))


def _scrape(client: Client) -> Scrape | None:
    outcome, content = client.get("/metrics")
    if outcome != "200":
        return None
    try:
        return Scrape.parse(content.decode())
    except ValueError:
        return None


def _spent(client: Client) -> CpuTimes | None:
    return cpu_times(client.port) if is_local(client.host) else None
