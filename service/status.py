"""What the service does and has done, as one document: health, models, totals, and what happened lately."""

from __future__ import annotations

from typing import Any

from service.health import models, readiness
from service.metrics.batches import Counted
from service.recent import LATENCY_WINDOW_S, RecentBatch, percentile
from service.release import VERSION
from service.runtime import Runtime
from service.statistics import Totals


def status(runtime: Runtime) -> dict[str, Any]:
    """The body of `GET /status.json`, of plain JSON types; it holds nothing that a client has sent.

    Times of batches are seconds since the start, on the clock that `uptime_s` is read from. Rates are left to the
    reader: all totals only grow as long as `started_at` stays the same, also those of versions that were unloaded.
    """
    _, health = readiness(runtime)
    recent = runtime.recent
    return {
        "service_version": VERSION,
        "started_at": recent.began.isoformat(),
        "uptime_s": round(recent.uptime_s, 3),
        "health": health,
        "settings": _settings(runtime),
        "models": models(runtime),
        "totals": [
            _totals(name, version, statistics.totals(), runtime.metrics.counted(name, version))
            for (name, version), statistics in runtime.all_statistics().items()
        ],
        "latency": _latency(runtime),
        "recent_batches": [_batch(one, recent.began_at) for one in recent.batches()],
    }


def _settings(runtime: Runtime) -> dict[str, Any]:
    """What the numbers have to be measured by."""
    settings = runtime.settings
    return {
        "max_batch_size": settings.max_batch_size,
        "max_batch_latency_ms": settings.max_batch_latency_ms,
        "max_queue_size": settings.max_queue_size,
        "batch_policy": settings.batch_policy,
        "scheduler": settings.scheduler,
    }


def _totals(name: str, version: str, totals: Totals, counted: Counted) -> dict[str, Any]:
    """Since the start. `seconds`: of the requests that succeeded, and the parts of that time."""
    return {
        "model": name,
        "version": version,
        "requests": {"succeeded": totals.succeeded.count, "failed": totals.failed.count},
        "rows": totals.rows,
        "batches": totals.batches,
        "batch_sizes": {str(size): total.count for size, total in totals.batch_model.items()},
        "seconds": {
            "total": round(totals.succeeded.seconds, 6),
            "prepare": round(totals.prepared.seconds, 6),
            "queue": round(totals.queued.seconds, 6),
            "model": round(totals.in_model.seconds, 6),
            "present": round(totals.presented.seconds, 6),
        },
        "flushes": counted.flushes,
        "errors": counted.errors,
        "rejected": counted.rejected,
        "retries": counted.retries,
        "abandoned_rows": counted.abandoned,
        "tokens": counted.tokens,
        "padding_tokens": counted.padding_tokens,
    }


def _latency(runtime: Runtime) -> dict[str, Any]:
    """Of the requests of all models that were answered well in the last `window_s`; null where there were none."""
    took_s = sorted(one for statistics in runtime.all_statistics().values() for one in statistics.recent_latencies_s())
    told: dict[str, Any] = {"window_s": LATENCY_WINDOW_S, "count": len(took_s)}
    for percent in (50, 95, 99):
        value_s = percentile(took_s, percent)
        told[f"p{percent}_ms"] = None if value_s is None else round(value_s * 1000, 3)
    return told


def _batch(batch: RecentBatch, began_at: float) -> dict[str, Any]:
    info = batch.info
    return {
        "batch_id": info.batch_id,
        "model": batch.model,
        "version": batch.version,
        "instance": info.instance,
        "started_at_s": round(info.started_at - began_at, 6),
        "size": info.size,
        "reason": info.reason,
        "runs": info.runs,
        "failed_rows": batch.failed_rows,
        "longest_wait_ms": round(batch.longest_wait_s * 1000, 3),
        "model_ms": round(info.model_s * 1000, 3),
        "padding_share": round(info.padding_share, 4),
    }
