"""Measuring what batches of each size cost, on a server that nobody else asks."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from service.bench.bodies import Body, json_body
from service.bench.client import Answer
from service.bench.errors import NoReference
from service.tune.curve import Curve

SIZES = (1, 2, 4, 8, 16, 32, 64)

# Of every size, before it is measured: the first batch of a shape may compile or allocate.
_WARM_UPS = 2
_LEAST_ROUNDS = 5


def measured_curve(
    instances: Sequence[Any],
    ask: Callable[[Body], Answer],
    *,
    sizes: Sequence[int] = SIZES,
    limit_s: float,
    rng: random.Random,
    progress: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
) -> Curve:
    """The median time in the model of batches of each size, drawn from `instances`, in turns until `limit_s` is over.

    ask: the predict route with `explain=1`, of a server whose batches hold 64 rows and wait for nobody. A size that the
    server does not take as one batch is left out. Raises NoReference when it takes none.
    """
    times_s: dict[int, list[float]] = {size: [] for size in sizes}
    began, rounds = clock(), 0
    while rounds < _WARM_UPS + _LEAST_ROUNDS or clock() - began < limit_s:
        for size in sizes:
            time_s = _batch_s(ask(json_body({"instances": rng.choices(instances, k=size)})), size)
            if time_s is not None and rounds >= _WARM_UPS:
                times_s[size].append(time_s)
            progress(min(1.0, (clock() - began) / limit_s))
        rounds += 1
    medians = {size: statistics.median(found) for size, found in times_s.items() if found}
    if not medians:
        raise NoReference("the server answers none of the bodies that its model was to be measured with")
    return Curve.of(medians)


def _batch_s(answer: Answer, size: int) -> float | None:
    """None where it failed, or the rows did not run as one batch."""
    outcome, content = answer
    if outcome != "200":
        return None
    batches = orjson.loads(content)["batch"]
    if {batch["batch_size"] for batch in batches} != {size}:
        return None
    return float(batches[0]["model_ms"]) / 1000
