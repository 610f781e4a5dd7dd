"""A measurement as data for programs and as lines for people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from service.bench.measure import Measurement
from service.bench.result import LoadResult, Quantiles
from service.bench.scraped import Histogram, Scrape

# Where this share of the requests was sent late by more than a tenth of the median latency, the load was behind.
_LATE_SHARE = 0.1

# Requests are sent off by a clock that ticks about once in a millisecond; what is later than this was held up.
_LATE_MS = 2.0

# With fewer requests than this the slowest of them is what is called the 99th percentile.
_LEAST_FOR_P99 = 100

# Rows that the server counted, to those that were sent to it: above this, others asked it too.
_OTHERS_SHARE = 1.02


def as_data(measurement: Measurement) -> dict[str, Any]:
    """Of JSON types only; a number that there is none of is null."""
    clients = measurement.clients
    data = {
        "load": {
            **asdict(replace(measurement.pattern, recorded=())),
            "kind": measurement.pattern.kind.value,
            "recorded": len(measurement.pattern.recorded) or None,
        },
        **asdict(clients),
        "distinct_answers": measurement.distinct_answers,
        "has_steady_answers": measurement.has_steady_answers,
        "server": {
            "cpu_ms_per_request": measurement.cpu_ms_per_request,
            **_counted(measurement.server.counted),
        },
        "doubts": list(doubts(measurement)),
    }
    finite: dict[str, Any] = _without_nan(data)
    return finite


def as_lines(measurement: Measurement) -> Iterator[str]:
    """A table of two columns, and what is doubtful about it."""
    clients, counted = measurement.clients, measurement.server.counted
    yield f"{measurement.pattern}, {clients.lasted_s:.1f} s"
    yield ""
    yield _row("requests", f"{clients.requests:,} ({clients.rows:,} rows)")
    yield _row("throughput", f"{clients.requests_per_s:,.1f} requests/s, {clients.rows_per_s:,.1f} rows/s")
    yield _row("latency", _quantiles(clients.latency_ms))
    yield _row("sent late by", _quantiles(clients.late_ms))
    shown = ", ".join(f"{count:,} x {outcome}" for outcome, count in clients.errors.items())
    yield _row("errors", shown or "none")
    yield _row("wrong answers", f"{clients.wrong_answers:,}")
    if counted is not None and counted.batch_size.count:
        yield _row("batches", f"{counted.batch_size.count:,.0f}, {counted.batch_size.mean:.2f} rows on average")
        yield _row("queue wait", _estimated(counted.queue_wait_s))
        yield _row("model, a batch", _estimated(counted.model_s))
        if counted.padding_share > 0:
            yield _row("padding", f"{counted.padding_share:.1%} of all tokens")
    if measurement.cpu_ms_per_request is not None:
        yield _row("server CPU", f"{measurement.cpu_ms_per_request:.3f} ms per request")
    for doubt in doubts(measurement):
        yield f"  note: {doubt}"


def doubts(measurement: Measurement) -> Iterator[str]:
    """What a reader must know before believing the figures."""
    yield from _doubts_of_clients(measurement.clients)
    if not measurement.has_steady_answers:
        yield (
            "the same body got different answers when it was asked alone twice: none could be called wrong, and only "
            "the number of predictions was looked at"
        )
    elif measurement.distinct_answers == 1:
        yield "all bodies have the same answer: a mix-up of answers would not be seen; give more different --bodies"
    yield from _doubts_of_server(measurement)


def _doubts_of_clients(clients: LoadResult) -> Iterator[str]:
    if clients.late_ms.p95 > max(_LATE_MS, _LATE_SHARE * clients.latency_ms.p50):
        yield (
            "many requests were sent late: the server holds the connections, or this program is short of CPU; "
            "latencies count from when requests were due"
        )
    answered = clients.requests - sum(clients.errors.values())
    if answered < clients.requests:
        yield (
            f"{1 - answered / clients.requests:.1%} of the requests failed: latencies are of the others, and may look "
            "the better for it"
        )
    if 0 < answered < _LEAST_FOR_P99:
        yield f"{answered} answers are too few for a 99th percentile: it is the slowest of them"


def _doubts_of_server(measurement: Measurement) -> Iterator[str]:
    counted, rows = measurement.server.counted, measurement.clients.rows
    if counted is None:
        yield (
            "the server's /metrics cannot be read (METRICS_KEY?), or began anew (a restart?): nothing is known of its "
            "batches"
        )
    elif counted.batch_size.sum > _OTHERS_SHARE * rows:
        yield (
            f"the server counted {counted.batch_size.sum:,.0f} rows and was sent {rows:,} from here: others asked it, "
            "too, and its figures are of all of them"
        )
    if measurement.server.cpu_s is None:
        yield (
            "the server's processes cannot be seen from here, or were started again meanwhile: nothing is known of its "
            "CPU time"
        )


def _counted(counted: Scrape | None) -> dict[str, Any]:
    if counted is None:
        return dict.fromkeys(("batches", "mean_batch_size", "queue_wait_ms", "model_ms", "padding_share"))
    return {
        "batches": counted.batch_size.count,
        "mean_batch_size": counted.batch_size.mean,
        "queue_wait_ms": _estimates(counted.queue_wait_s),
        "model_ms": _estimates(counted.model_s),
        "padding_share": counted.padding_share,
    }


def _estimates(times_s: Histogram) -> dict[str, float]:
    quantiles = {f"p{round(share * 100)}": times_s.quantile(share) * 1000 for share in (0.5, 0.95, 0.99)}
    return {"mean": times_s.mean * 1000, **quantiles}


def _estimated(times_s: Histogram) -> str:
    mean_ms, *quantiles_ms = _estimates(times_s).values()
    return "mean {:.2f}, p50 ~{:.2g}, p95 ~{:.2g}, p99 ~{:.2g} ms".format(mean_ms, *quantiles_ms)


def _quantiles(times: Quantiles) -> str:
    if math.isnan(times.mean):
        return "none"
    return (
        f"mean {times.mean:.2f}, p50 {times.p50:.2f}, p95 {times.p95:.2f}, p99 {times.p99:.2f}, max {times.max:.2f} ms"
    )


def _row(title: str, text: str) -> str:
    return f"  {title:<15} {text}"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
