"""What a running service has measured of itself, read from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from service.bench.client import Client
from service.bench.errors import BenchError
from service.bench.scraped import Scrape
from service.tune.advice import HTTP_S
from service.tune.curve import Curve

# A size with fewer batches than this tells more of chance than of the model: of so many, the mean is as uncertain as a
# quarter of what one batch differs by.
LEAST_BATCHES = 16

_NANOSECONDS = 1e9


class NothingMeasured(BenchError):
    """The service has not run enough batches for any advice, or does not show them."""


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """Since the service was started. `request_s`: what a request costs beside the model.

    `batches`: how many of each size have run; `curve` has the sizes of which there were LEAST_BATCHES.
    """

    model: str
    curve: Curve
    counted: Scrape
    request_s: float
    batches: Mapping[int, int]


def live_figures(client: Client, model: str | None = None) -> LiveFigures:
    """Of `model`, or of the one that has run the most rows. Raises NothingMeasured."""
    try:
        return _figures(client, model)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        raise NothingMeasured("what the service tells of itself is not what a Jitney does: is it one?") from None


def _figures(client: Client, model: str | None) -> LiveFigures:
    stats = [entry for entry in _stats(client) if model in (None, entry["name"])]
    if not stats:
        raise NothingMeasured("the service has no such model loaded")
    busiest = max(stats, key=lambda entry: entry["inference_count"])
    ran = {batches["batch_size"]: batches["compute_infer"] for batches in busiest["batch_stats"]}
    times_s = {
        size: infer["ns"] / infer["count"] / _NANOSECONDS
        for size, infer in ran.items()
        if infer["count"] >= LEAST_BATCHES
    }
    if not times_s:
        raise NothingMeasured(f"no batch size has run {LEAST_BATCHES} times yet: ask again when there was some traffic")
    # Of this one alone, as the batches above are.
    counted = _scrape(client, {"model": busiest["name"], "version": busiest["version"]})
    counts = {size: int(infer["count"]) for size, infer in sorted(ran.items())}
    return LiveFigures(busiest["name"], Curve.of(times_s), counted, _beside_the_model_s(busiest), counts)


def _stats(client: Client) -> list[dict[str, Any]]:
    outcome, content = client.get("/v2/models/stats")
    if not outcome.isdecimal():
        raise NothingMeasured(f"no server answers there ({outcome}): is the address right, its port included?")
    if outcome != "200":
        raise NothingMeasured(f"/v2/models/stats ends with {outcome}: is this a Jitney, and is a --header needed?")
    found: list[dict[str, Any]] = orjson.loads(content)["model_stats"]
    return found


def _scrape(client: Client, labels: Mapping[str, str]) -> Scrape:
    outcome, content = client.get("/metrics")
    if outcome != "200":
        raise NothingMeasured(f"/metrics ends with {outcome}: METRICS_KEY needs a --header")
    return Scrape.parse(content.decode(), labels)


def _beside_the_model_s(entry: dict[str, Any]) -> float:
    stats = entry["inference_stats"]
    requests: int = stats["success"]["count"]
    spent_ns: int = stats["compute_input"]["ns"] + stats["compute_output"]["ns"]
    return HTTP_S + spent_ns / max(1, requests) / _NANOSECONDS
