"""Waiting for a worker that takes everything that waits, up to a full batch, as soon as it is free."""

from __future__ import annotations

import random
from collections.abc import Callable

# Enough for a 99th percentile that rests on 50 requests.
REQUESTS = 5000


def latencies_s(
    batch_s: Callable[[int], float], max_batch_size: int, rate_per_s: float, *, requests: int = REQUESTS, seed: int = 0
) -> list[float]:
    """Of single rows that come independently of each other: the wait and the batch itself, in the order of arrival."""
    rng = random.Random(seed)
    arrivals, at_s = [], 0.0
    for _ in range(requests):
        at_s += rng.expovariate(rate_per_s)
        arrivals.append(at_s)
    took: list[float] = []
    free_at_s = 0.0
    while len(took) < requests:
        first = len(took)
        starts_at_s = max(free_at_s, arrivals[first])
        last = first + 1
        while last < requests and last - first < max_batch_size and arrivals[last] <= starts_at_s:
            last += 1
        free_at_s = starts_at_s + batch_s(last - first)
        took += [free_at_s - arrived_s for arrived_s in arrivals[first:last]]
    return took
