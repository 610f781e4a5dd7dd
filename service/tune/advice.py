"""From what batches cost to the settings for a latency that must be kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.batching.policy import BatchPolicy
from service.bench.result import Quantiles
from service.settings import SPARE_THREADS, Settings
from service.tune.curve import PLATEAU_SHARE, Curve
from service.tune.simulation import latencies_s

# What HTTP costs a request, where that was not measured, seconds. Source: benchmark/overhead.md, and as
# much again for gunicorn.
HTTP_S = 0.0005

# Of the latency that must be kept, what is planned with: a real server is not as even as a simulated one.
_PLANNED_SHARE = 0.7

# Of what the server could do at most, the load that is planned with at most. Waits grow without bound towards 1.
_MOST_LOAD = 0.85
_LOAD_STEP = 0.05


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings, and what to expect from them. `requests_per_s`: of one row each, the most that keeps the latency.

    `keeps_slo`: False where not even single rows at a low rate are expected to; then these are the best there are.
    `instances`: worker threads that `threads` is enough for; the rest is reckoned for one.
    """

    max_batch_size: int
    max_batch_latency_ms: float
    batch_policy: BatchPolicy
    threads: int
    requests_per_s: float
    p99_ms: float
    keeps_slo: bool = True
    instances: int = 1

    def settings(self) -> dict[str, str]:
        """As environment variables."""
        return {
            "MAX_BATCH_SIZE": str(self.max_batch_size),
            "MAX_BATCH_LATENCY_MS": f"{self.max_batch_latency_ms:g}",
            "BATCH_POLICY": self.batch_policy.value,
            "THREADS": str(self.threads),
        }


def advise(curve: Curve, slo_ms: float, request_s: float, instances: int = 1) -> Advice:
    """For the highest rate at which the 99th percentile stays below `slo_ms`.

    Among the sizes that come near that rate it is the smallest with which the model comes near what it can do: where
    HTTP is what limits the rate, larger batches than are needed then are there for when more comes at once.

    request_s: what a request costs the server beside the model; both want the same interpreter, so it counts as
    part of the batch. instances: worker threads that there will be.
    """
    found = {size: _highest_rate(curve, size, slo_ms, request_s) for size in curve.sizes}
    best = max(rate for rate, _ in found.values())
    if best == 0:
        return _hopeless(curve, request_s, instances)
    near = [size for size, (rate, _) in found.items() if rate >= PLATEAU_SHARE * best]
    # A row that comes behind a full batch waits for it, and then for its own: both have to fit.
    fit = [size for size in near if 2000 * curve.batch_s(size) <= slo_ms] or near[:1]
    most = max(map(curve.rows_per_s, fit))
    size = next(size for size in fit if curve.rows_per_s(size) >= PLATEAU_SHARE * most)
    rate, p99_ms = found[size]
    threads = threads_for(size, rate, p99_ms, instances)
    window_ms = _window_ms(curve, size, slo_ms)
    return Advice(size, window_ms, BatchPolicy.EAGER, threads, rate, p99_ms, instances=instances)


def threads_for(max_batch_size: int, requests_per_s: float, p99_ms: float, instances: int = 1) -> int:
    """As many as the default has, and no fewer than there are requests inside at a time. Source: Little's law."""
    inside = math.ceil(requests_per_s * p99_ms / 1000)
    by_default = Settings.model_construct(max_batch_size=max_batch_size, threads=None, model_instances=instances)
    return max(by_default.http_threads, inside + SPARE_THREADS)


def _highest_rate(curve: Curve, size: int, slo_ms: float, request_s: float) -> tuple[float, float]:
    """Requests/s and the 99th percentile in ms that is expected at that rate; zeros where no rate is low enough."""

    def batch_s(rows: int) -> float:
        return curve.batch_s(rows) + rows * request_s

    capacity = size / batch_s(size)
    kept, missed = 0, round(_MOST_LOAD / _LOAD_STEP) + 1
    found = (0.0, 0.0)
    while missed - kept > 1:
        step = (kept + missed) // 2
        rate = capacity * step * _LOAD_STEP
        p99_ms = Quantiles.of(latencies_s(batch_s, size, rate)).p99
        if p99_ms <= _PLANNED_SHARE * slo_ms:
            kept, found = step, (rate, p99_ms)
        else:
            missed = step
    return found


def _window_ms(curve: Curve, size: int, slo_ms: float) -> float:
    """How long a row waits at most for one that is on its way.

    Never longer than a batch of one takes, since running once more costs no more than that; and not what the latency
    does not leave: the batch that is running, and the own one.
    """
    left_ms = slo_ms - 2000 * curve.batch_s(size)
    return round(max(0.0, min(1000 * curve.t1_s, left_ms)), 1)


def _hopeless(curve: Curve, request_s: float, instances: int) -> Advice:
    size = curve.sizes[0]
    rate = _LOAD_STEP * size / (curve.batch_s(size) + size * request_s)
    p99_ms = Quantiles.of(latencies_s(lambda rows: curve.batch_s(rows) + rows * request_s, size, rate)).p99
    threads = threads_for(size, rate, p99_ms, instances)
    return Advice(size, 0.0, BatchPolicy.EAGER, threads, rate, p99_ms, keeps_slo=False, instances=instances)
