"""What a load came to, as plain numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from service.bench.load import NOT_SENT, Exchange


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

    `late_ms`: how long after that it was sent off, where it was. Where this is much, it was the load that was slow, or
    `connections` were too few, and not only the server. `lasted_s`: from the start to the last answer.
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


def result_of(exchanges: Sequence[Exchange], rows: Sequence[int], duration_s: float) -> LoadResult:
    """rows: of each body, by its position. duration_s: for how long requests were due.

    Throughput counts what was answered with 200, right or wrong, while they were due: a single straggler behind the
    others would else pass for a slow server. Only where nothing came in that time it goes by all that came.
    """
    good = [one for one in exchanges if one.outcome == "200"]
    lasted_s = max((one.done_s for one in exchanges), default=0.0)
    in_time = [one for one in good if one.done_s <= duration_s]
    counted, counted_s = (in_time, duration_s) if in_time else (good, lasted_s)
    rows_answered = sum(rows[one.body] for one in counted)
    return LoadResult(
        requests=len(exchanges),
        rows=sum(rows[one.body] for one in exchanges),
        lasted_s=lasted_s,
        requests_per_s=len(counted) / counted_s if counted_s else 0.0,
        rows_per_s=rows_answered / counted_s if counted_s else 0.0,
        latency_ms=Quantiles.of([one.done_s - one.due_s for one in good]),
        late_ms=Quantiles.of([one.sent_s - one.due_s for one in exchanges if one.outcome != NOT_SENT]),
        errors=dict(sorted(Counter(one.outcome for one in exchanges if one.outcome != "200").items())),
        wrong_answers=sum(one.wrong for one in good),
    )
