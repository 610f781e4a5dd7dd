"""What a load came to, as plain numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from service.bench.load import Exchange


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of a number of times, in milliseconds; NaN where there were none."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, times_s: Sequence[float]) -> Quantiles:
        """Each quantile is a time that occurred: the smallest that is not below that share of them."""
        if not times_s:
            return cls(math.nan, math.nan, math.nan, math.nan, math.nan)
        ordered = sorted(time_s * 1000 for time_s in times_s)
        p50, p95, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95, 0.99))
        return cls(math.fsum(ordered) / len(ordered), p50, p95, p99, ordered[-1])


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What clients saw. Latencies are those of requests with status 200, from when each was due.

    `late_ms`: how long after that it was sent off. Where this is much, it was the load that was slow, or `connections`
    were too few, and not only the server. `lasted_s`: from the start to the last answer.
    """

    requests: int
    rows: int
    lasted_s: float
    requests_per_s: float
    rows_per_s: float
    latency_ms: Quantiles
    late_ms: Quantiles
    errors: dict[str, int]
    wrong_answers: int


def result_of(exchanges: Sequence[Exchange], rows: Sequence[int]) -> LoadResult:
    """rows: of each body, by its position. Throughput counts what was answered with 200, right or wrong."""
    good = [one for one in exchanges if one.outcome == "200"]
    lasted_s = max((one.done_s for one in exchanges), default=0.0)
    rows_answered = sum(rows[one.body] for one in good)
    return LoadResult(
        requests=len(exchanges),
        rows=sum(rows[one.body] for one in exchanges),
        lasted_s=lasted_s,
        requests_per_s=len(good) / lasted_s if lasted_s else 0.0,
        rows_per_s=rows_answered / lasted_s if lasted_s else 0.0,
        latency_ms=Quantiles.of([one.done_s - one.due_s for one in good]),
        late_ms=Quantiles.of([one.sent_s - one.due_s for one in exchanges]),
        errors=dict(sorted(Counter(one.outcome for one in exchanges if one.outcome != "200").items())),
        wrong_answers=sum(one.wrong for one in good),
    )
