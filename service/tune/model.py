"""A model measured in a server of its own: what batches cost, what texts' lengths do, what a request costs beside."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from service.bench.bodies import JSON, Body, json_body
from service.bench.client import Client
from service.bench.errors import CannotMakeUp
from service.bench.made import WORDS, made_bodies
from service.bench.measure import Say, measure
from service.bench.mix import Mix
from service.bench.own_server import model_settings, own_server
from service.bench.pattern import Kind, Pattern
from service.tune.advice import HTTP_S
from service.tune.curve import Curve
from service.tune.probe import SIZES, measured_curve

# Instances that batches are drawn from.
_DISTINCT = 64

# Lengths of texts whose batches are measured, words, and the sizes of these.
_WORDS = (5, 20, 80)
_TEXT_SIZES = (1, 8, 32)

# Each request makes a batch of its own, and as large a one as it asks for. The start tries nothing: batches that are
# too much for the model are found out one by one.
_PROBED: Mapping[str, object] = {
    "MAX_BATCH_SIZE": SIZES[-1],
    "MAX_BATCH_LATENCY_MS": 0,
    "MAX_BATCH_TOKENS": "",
    "MAX_INSTANCES": "",
    "MAX_QUEUE_SIZE": "",
    # Several would share the rows of a request among them.
    "MODEL_INSTANCES": 1,
    "SCHEDULER": "fifo",
    "WARMUP": "false",
    "SELF_CHECK": "off",
}

# Of the time that there is, how much may go into asking for each body alone.
_ASKING_SHARE = 0.5

# Callers of the load that tells what a request costs, for how long, and the least that one is taken to cost, seconds.
_CALLERS = 64
_LOAD_S = 3.0
_LEAST_COST_S = 0.0002
_LEAST_FULL_BATCHES = 5


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """`bodies`: what it was measured with, of one row each. `by_words`: for texts alone, by their length."""

    curve: Curve
    by_words: Mapping[int, Curve]
    request_s: float
    bodies: list[Body]


def model_figures(
    model: Path, given: Sequence[Body] | None, *, limit_s: float, rng: random.Random, say: Say
) -> ModelFigures:
    """Measure for about twice `limit_s`, a load of some seconds included. Raises BenchError.

    given: bodies to take the instances from; None to make them up.
    """
    say("starting a server", None)
    with (
        own_server({**model_settings(model), **_PROBED}) as url,
        Client(url, connections=_CALLERS) as client,
        Client(f"{url}/predict?explain=1", connections=1) as asking,
    ):
        description = _description(client)
        instances = _instances(description, given, WORDS, rng)
        progress = partial(say, "measuring batches of 1 to 64 rows")
        curve = measured_curve(instances, asking.predict, limit_s=limit_s, rng=rng, progress=progress)
        by_words = {}
        for words in _WORDS if _takes_texts(description) else ():
            alike = _instances(description, None, Mix(((words, words),)), rng)
            by_words[words] = measured_curve(
                alike,
                asking.predict,
                sizes=_TEXT_SIZES,
                limit_s=limit_s / len(_WORDS) / 2,
                rng=rng,
                progress=partial(say, f"measuring texts of {words} words"),
            )
        bodies = [json_body({"instances": [instance]}) for instance in affordable(instances, curve, limit_s)]
        return ModelFigures(curve, by_words, request_s(client, bodies, curve, say), bodies)


def _description(client: Client) -> dict[str, Any]:
    _, content = client.get("/openapi.json")
    described: dict[str, Any] = orjson.loads(content)
    return described


def _takes_texts(description: dict[str, Any]) -> bool:
    return bool(description["components"]["schemas"]["Instance"].get("title") == "Text")


def _instances(description: dict[str, Any], given: Sequence[Body] | None, words: Mix, rng: random.Random) -> list[Any]:
    two = Mix(((2, 2),))  # pictures, too, are then instances of JSON
    bodies = given or made_bodies(description, count=_DISTINCT // 2, rows=two, words=words, rng=rng)
    parsed = [orjson.loads(body.payload) for body in bodies if body.content_type == JSON]
    found = list(itertools.chain.from_iterable(body.get("instances") or [body["text"]] for body in parsed))
    if not found:
        raise CannotMakeUp("there are no instances to measure with: give --bodies")
    return found


def affordable(instances: Sequence[Any], curve: Curve, limit_s: float) -> Sequence[Any]:
    """As many as there is time to ask for one by one, and at least one."""
    return instances[: max(1, int(_ASKING_SHARE * limit_s / curve.t1_s))]


def request_s(client: Client, bodies: Sequence[Body], curve: Curve, say: Say) -> float:
    """What a request costs beside the model: what is missing when all that a full load takes is ascribed to batches.

    As time and not as CPU time, so that whatever else this machine has to do counts, the load itself included. Of a
    model that would run next to no full batch meanwhile it cannot be told, and does not matter.
    """
    if curve.batch_s(_CALLERS) > _LOAD_S / _LEAST_FULL_BATCHES:
        return HTTP_S
    measured = measure(client, bodies, Pattern(Kind.CLOSED, _LOAD_S, callers=_CALLERS), warm_up_s=0.5, say=say)
    counted = measured.server.counted
    if counted is None or not measured.clients.rows_per_s:
        return HTTP_S
    rows = max(1, round(counted.batch_size.mean))
    return max(_LEAST_COST_S, 1 / measured.clients.rows_per_s - curve.batch_s(rows) / rows)
