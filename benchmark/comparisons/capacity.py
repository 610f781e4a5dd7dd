"""What a server of a model can do at most, which loads are shares of."""

from __future__ import annotations

from functools import cache

from trials import serving

from comparisons.scale import Scale

CALLERS = 64


@cache
def capacity_of(model: str, scale: Scale) -> float:
    """Requests per second with eager batches of up to 32 rows, measured once in a run."""
    with serving(model, "capacity", scale.duration_s, max_batch_size=32, batch_policy="eager") as trial:
        return trial.closed(CALLERS, CALLERS).requests_per_s
