"""What the scheduler of a running service has found out about batches of texts, read from outside."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from service.bench.client import Client


class BestBatch(NamedTuple):
    """Of texts of up to `tokens` tokens, `rows` at a time cost least for each; the fields of `best_batches`."""

    tokens: int
    rows: int
    ms_per_row: float
    smallest_rows: int
    smallest_ms_per_row: float


def learnt(client: Client) -> list[BestBatch]:
    """By length, shortest first; empty where the scheduler does not learn, or has not yet."""
    _, content = client.get("/healthz")
    try:
        return [BestBatch(**best) for best in orjson.loads(content).get("best_batches", [])]
    except (ValueError, TypeError, AttributeError):
        return []  # of a service that is no Jitney, as others say
