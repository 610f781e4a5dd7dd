"""Whether an answer is the right one: the answer that the same body got when it was asked alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

import orjson

from service.bench.bodies import Body
from service.bench.errors import NoReference

# Summing in another order, as a batch of another size does, moves float32 scores by about a millionth of their size.
TOLERANCE = 1e-4


class Reference:
    """The predictions for each of `bodies`, by position. `distinct`: how many of them differ."""

    def __init__(self, predictions: Sequence[Any], tolerance: float = TOLERANCE) -> None:
        self._predictions = predictions
        self._tolerance = tolerance
        self.distinct = len({orjson.dumps(one) for one in predictions})

    def agrees(self, position: int, content: bytes) -> bool:
        """Whether `content` is a right answer to the body at `position`."""
        try:
            given = orjson.loads(content)["predictions"]
        except (ValueError, KeyError, TypeError):
            return False
        return same(given, self._predictions[position], self._tolerance)


def ask_alone(
    bodies: Sequence[Body], ask: Callable[[Body], tuple[str, bytes]], tolerance: float = TOLERANCE
) -> Reference:
    """Ask for each body once, one after the other. Raises NoReference."""
    predictions = []
    for number, body in enumerate(bodies, 1):
        outcome, content = ask(body)
        if outcome != "200":
            raise NoReference(f"body {number} of {len(bodies)}, asked alone, ended with {outcome}{_detail(content)}")
        try:
            predictions.append(orjson.loads(content)["predictions"])
        except (ValueError, KeyError, TypeError):
            raise NoReference(f"the answer to body {number} has no predictions: is this a predict route?") from None
    return Reference(predictions, tolerance)


def same(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two predictions agree: numbers within `tolerance` (of the larger, where that is above 1)."""
    if left == right:
        return True
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            starmap(lambda a, b: same(a, b, tolerance), zip(left, right, strict=True))
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key], tolerance) for key in left)
    if isinstance(left, float) and isinstance(right, float | int):
        return abs(left - right) <= tolerance * max(1.0, abs(left), abs(right))
    return isinstance(left, int) and isinstance(right, float) and same(right, left, tolerance)


def _detail(content: bytes) -> str:
    try:
        return f": {orjson.loads(content)['detail']}"
    except (ValueError, KeyError, TypeError):
        return ""
