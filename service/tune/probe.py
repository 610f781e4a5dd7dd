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

# How long a server may take to come back after a batch that it did not survive, and how often it is looked for.
_RETURN_LIMIT_S = 120.0
_LOOK_EVERY_S = 0.5

# A slow model gets fewer rounds than that, once this many times the limit is over; a round of warm-up gets as long.
_MOST_LIMITS = 3


def measured_curve(
    instances: Sequence[Any],
    ask: Callable[[Body], Answer],
    *,
    sizes: Sequence[int] = SIZES,
    limit_s: float,
    rng: random.Random,
    progress: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Curve:
    """The median time in the model of batches of each size, drawn from `instances`, in turns until `limit_s` is over.

    ask: the predict route with `explain=1`, of a server whose batches hold 64 rows and wait for nobody. sizes: rising.
    A size that the server does not take as one batch is left out; and so are those from the one on that ends its
    connection, or with which a round takes longer than `limit_s`. Raises NoReference when it takes none.
    """
    times_s: dict[int, list[float]] = {size: [] for size in sizes}
    left = list(sizes)
    began, rounds = clock(), 0
    while _has_to_go_on(rounds, clock() - began, limit_s):
        round_began = clock()
        round_limit_s = limit_s if rounds >= _WARM_UPS else _MOST_LIMITS * limit_s
        for place, size in enumerate(left):
            answer = ask(json_body({"instances": rng.choices(instances, k=size)}))
            time_s = _batch_s(answer, size)
            if time_s is not None and rounds >= _WARM_UPS:
                times_s[size].append(time_s)
            progress(min(1.0, (clock() - began) / limit_s))
            has_answered = answer[0].isdecimal()
            if not has_answered or clock() - round_began > round_limit_s:
                del left[place if time_s is None else place + 1 :]
                if not has_answered:
                    _wait_for_answers(instances, ask, size, clock, sleep)
                break
        rounds += 1
        if not left:
            break
    medians = {size: statistics.median(found) for size, found in times_s.items() if found}
    if not medians:
        raise NoReference("the server answers none of the bodies that its model was to be measured with")
    return Curve.of(medians)


def _has_to_go_on(rounds: int, lasted_s: float, limit_s: float) -> bool:
    """Until the limit, and beyond it for as many rounds as a median needs; one is measured however long it takes."""
    if rounds <= _WARM_UPS or lasted_s < limit_s:
        return True
    return rounds < _WARM_UPS + _LEAST_ROUNDS and lasted_s < _MOST_LIMITS * limit_s


def _wait_for_answers(
    instances: Sequence[Any],
    ask: Callable[[Body], Answer],
    size: int,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Until the server that a batch of `size` rows was too much for is there again. Raises NoReference."""
    give_up_at = clock() + _RETURN_LIMIT_S
    while ask(json_body({"instances": instances[:1]}))[0] != "200":
        if clock() >= give_up_at:
            raise NoReference(f"after {size} rows at once the server has not answered for {_RETURN_LIMIT_S:g} s")
        sleep(_LOOK_EVERY_S)


def _batch_s(answer: Answer, size: int) -> float | None:
    """None where it failed, or the rows did not run as one batch."""
    outcome, content = answer
    if outcome != "200":
        return None
    batches = orjson.loads(content)["batch"]
    if {batch["batch_size"] for batch in batches} != {size}:
        return None
    return float(batches[0]["model_ms"]) / 1000
