"""Advice as lines for people, as data for programs, and as lines of a `.env` file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from service.bench.report import as_data as measured_as_data
from service.bench.scraped import Scrape
from service.tune.advice import Advice
from service.tune.check import Attempt
from service.tune.curve import Curve
from service.tune.learnt import BestBatch

# Below this many times the rows per second of single rows, batching is said not to pay.
_LEAST_GAIN = 1.2


def curve_lines(curve: Curve) -> Iterator[str]:
    """What batches cost, and what follows from it."""
    yield "  rows   batch, ms   rows/s"
    for size, batch_s in curve.points:
        yield f"  {size:>4}   {batch_s * 1000:>9.3f}   {_rate(curve.rows_per_s(size)):>6}"
    yield ""
    if math.isnan(curve.marginal_s):
        yield "Batches of one size only: what one more row costs is not known."
        return
    further = f"each further row {curve.marginal_s * 1000:.3f} ms"
    if curve.marginal_s <= 0:
        further = "further rows nothing that could be measured"
    yield (f"A batch of {curve.sizes[0]} takes {curve.t1_s * 1000:.3f} ms and {further}; {_plateau(curve)}")
    if curve.gain < _LEAST_GAIN:
        yield (
            f"Batching hardly pays for this model on this machine: at best {curve.gain:.2f} times the rows of "
            f"batches of {curve.sizes[0]}."
        )


def _plateau(curve: Curve) -> str:
    if curve.plateau == curve.sizes[-1]:
        return f"up to {curve.plateau} rows, the most that was measured, larger batches bring more."
    return f"from {curve.plateau} rows on, larger batches bring next to nothing."


def _rate(per_s: float) -> str:
    """Whole numbers, where they say enough."""
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def text_lines(by_words: Mapping[int, Curve]) -> Iterator[str]:
    """What the length of texts does to a batch."""
    if by_words:
        sizes = next(iter(by_words.values())).sizes
        yield "  words   " + "   ".join(f"{f'batch of {size}, ms':>15}" for size in sizes)
    for words, curve in by_words.items():
        yield f"  {words:>5}   " + "   ".join(f"{time_s * 1000:>15.3f}" for _, time_s in curve.points)


def advice_lines(advice: Advice, slo_ms: float) -> Iterator[str]:
    """The settings, and what is expected of them."""
    yield from (f"  {name}={value}" for name, value in advice.settings().items())
    yield ""
    if not advice.keeps_slo:
        yield f"No settings are expected to keep a p99 of {slo_ms:g} ms: the model alone takes too long for it."
    yield f"Expected: {_rate(advice.requests_per_s)} requests/s of one row with a p99 of {advice.p99_ms:.1f} ms."


def attempt_line(attempt: Attempt, slo_ms: float) -> str:
    """What became of one try."""
    clients, advice = attempt.measured.clients, attempt.advice
    counted = attempt.measured.server.counted
    rows = f", {counted.batch_size.mean:.1f} rows a batch" if counted is not None and counted.batch_size.count else ""
    failed = f", errors {clients.errors}" if clients.errors else ""
    failed += f", {clients.wrong_answers} wrong answers" if clients.wrong_answers else ""
    verdict = "kept" if attempt.kept else f"missed (at most {slo_ms:g} ms)"
    if not clients.requests:
        verdict = "no request was due in that time; give a longer --duration"
    return (
        f"Measured with batches of {advice.max_batch_size} at {_rate(advice.requests_per_s)} requests/s: p50 "
        f"{clients.latency_ms.p50:.1f} ms, p99 {clients.latency_ms.p99:.1f} ms{rows}{failed}: {verdict}."
    )


def learnt_lines(best_batches: Sequence[BestBatch]) -> Iterator[str]:
    """What a scheduler that learns makes of MAX_BATCH_SIZE, which it takes for a ceiling."""
    if best_batches:
        yield "The scheduler has learnt, for texts of up to so many tokens:"
        yield "  tokens   best rows   ms a row   ms a row in batches of"
    for best in best_batches:
        yield (
            f"  {best.tokens:>6}   {best.rows:>9}   {best.ms_per_row:>8.3f}   "
            f"{best.smallest_ms_per_row:>8.3f} {f'({best.smallest_rows})':>13}"
        )


# So many of the sizes that were left out are told.
_TOLD_SIZES = 8


def resting_lines(advice: Advice, batches: Mapping[int, int], least: int) -> Iterator[str]:
    """How much a running service has shown of what is recommended. batches: how many of each size have run."""
    size = advice.max_batch_size
    yield f"MAX_BATCH_SIZE={size} rests on {batches[size]:,} batches of {size} {'row' if size == 1 else 'rows'}."
    seldom = {rows: count for rows, count in batches.items() if count < least}
    if seldom:
        told = ", ".join(f"{rows} ({count})" for rows, count in list(seldom.items())[:_TOLD_SIZES])
        more = f" and {len(seldom) - _TOLD_SIZES} more" if len(seldom) > _TOLD_SIZES else ""
        yield f"Left out are sizes that ran fewer than {least} times: {told}{more}."
    largest = max(rows for rows in batches if rows not in seldom)
    if size == largest:
        yield f"Larger batches than {largest} may be better: `jitney tune MODEL` measures them."


def live_lines(counted: Scrape) -> Iterator[str]:
    """What the service's histograms tell of how it fares now."""
    waits, batches = counted.queue_wait_s, counted.batch_size
    yield (
        f"Until now: {batches.count:,.0f} batches of {batches.mean:.1f} rows on average, waits of p50 "
        f"~{waits.quantile(0.5) * 1000:.2g} ms and p99 ~{waits.quantile(0.99) * 1000:.2g} ms, batches of p99 "
        f"~{counted.model_s.quantile(0.99) * 1000:.2g} ms."
    )


def remarks(advice: Advice, slo_ms: float, tried: Sequence[Attempt]) -> list[str]:
    """Where the settings come from, for whoever finds them in a `.env` file."""
    how = f"expected p99 {advice.p99_ms:.1f} ms"
    if tried:
        how = f"measured p99 {tried[-1].measured.clients.latency_ms.p99:.1f} ms"
    told = [f"for a p99 of {slo_ms:g} ms, {how} at {_rate(advice.requests_per_s)} requests/s."]
    if tried and not tried[-1].kept:
        told.append("this misses what was asked for; nothing tried kept it.")
    elif not tried and not advice.keeps_slo:
        told.append("no settings are expected to keep what was asked for.")
    return told


def as_data(curve: Curve, advice: Advice, slo_ms: float, tried: Sequence[Attempt]) -> dict[str, Any]:
    """Of JSON types only."""
    return {
        "slo_ms": slo_ms,
        "curve": [{"rows": rows, "batch_ms": time_s * 1000} for rows, time_s in curve.points],
        "t1_ms": curve.t1_s * 1000,
        "marginal_ms": None if math.isnan(curve.marginal_s) else curve.marginal_s * 1000,
        "plateau_rows": curve.plateau,
        "gain": curve.gain,
        "settings": advice.settings(),
        "expected": {key: asdict(advice)[key] for key in ("requests_per_s", "p99_ms", "keeps_slo")},
        "checks": [
            {
                "settings": one.advice.settings(),
                "kept": one.kept,
                "best_batches": [best._asdict() for best in one.best_batches],
                **measured_as_data(one.measured),
            }
            for one in tried
        ],
    }
