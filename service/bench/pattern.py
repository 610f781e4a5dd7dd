"""How the requests of a load follow each other."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from service.bench import arrivals
from service.bench.load import Load


class Kind(StrEnum):
    """`closed`: callers that wait for their answer. The others are open loops, see `service.bench.arrivals`."""

    CLOSED = "closed"
    CONSTANT = "constant"
    POISSON = "poisson"
    BURSTS = "bursts"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Pattern:
    """`callers` counts for a closed loop, `rate_per_s` (requests) for the open ones, `burst` for bursts alone.

    `recorded`: the times that are replayed, rising from 0; those from `duration_s` on are left out.
    """

    kind: Kind
    duration_s: float
    callers: int = 1
    rate_per_s: float = 0.0
    burst: int = 1
    recorded: tuple[float, ...] = ()

    @property
    def connections(self) -> int | None:
        """How many are enough; None where that depends on the server."""
        return self.callers if self.kind is Kind.CLOSED else None

    def run(self, load: Load, rng: random.Random) -> None:
        """Put it on."""
        if self.kind is Kind.CLOSED:
            load.closed(self.callers, self.duration_s)
        else:
            load.open(arrivals.until(self.duration_s, iter(self._due_times_s(rng))), self.duration_s)

    def _due_times_s(self, rng: random.Random) -> Iterable[float]:
        if self.kind is Kind.CONSTANT:
            return arrivals.constant(self.rate_per_s)
        if self.kind is Kind.POISSON:
            return arrivals.poisson(self.rate_per_s, rng)
        if self.kind is Kind.BURSTS:
            return arrivals.bursts(self.rate_per_s, self.burst)
        return self.recorded

    def __str__(self) -> str:
        if self.kind is Kind.CLOSED:
            return f"{self.callers} callers in a closed loop"
        if self.kind is Kind.REPLAY:
            return f"an open loop, {len(self.recorded):,} recorded arrivals"
        shape = f"{self.kind} of {self.burst}" if self.kind is Kind.BURSTS else f"{self.kind} arrivals"
        return f"an open loop, {shape}, {self.rate_per_s:g} requests/s"
