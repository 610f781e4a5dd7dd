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

# Bodies that are asked for twice: whether a model answers alike at all shows in the first few.
_ASKED_TWICE = 8

# What helps against an answer that no prediction stands in.
_HINTS = {
    "3": "the server redirects: give the address that it redirects to",
    "401": "a key is needed: give it as --header",
    "403": "a key may be needed: give it as --header",
    "connection lost": "is it HTTP that is spoken there? https:// is an address of its own",
}


class Reference:
    """The predictions for each of `bodies`, by position. `distinct`: how many of them differ.

    is_steady: whether the same body gets the same answer when it is asked alone again. Where it does not, an answer
    counts as right that has as many predictions as it should.
    """

    def __init__(self, predictions: Sequence[Any], tolerance: float = TOLERANCE, *, is_steady: bool = True) -> None:
        self._predictions = predictions
        self._tolerance = tolerance
        self.is_steady = is_steady
        self.distinct = len({orjson.dumps(one) for one in predictions})

    def agrees(self, position: int, content: bytes) -> bool:
        """Whether `content` is a right answer to the body at `position`."""
        try:
            given = orjson.loads(content)["predictions"]
        except (ValueError, KeyError, TypeError):
            return False
        right = self._predictions[position]
        if not self.is_steady and isinstance(given, list) and isinstance(right, list):
            return len(given) == len(right)
        return same(given, right, self._tolerance)


def ask_alone(
    bodies: Sequence[Body], ask: Callable[[Body], tuple[str, bytes]], tolerance: float = TOLERANCE
) -> Reference:
    """Ask for each body, one after the other, and for some of them again. Raises NoReference."""

    def predictions(number: int, body: Body) -> Any:
        outcome, content = ask(body)
        if outcome != "200":
            why = _detail(content) or _hint(outcome)
            raise NoReference(f"body {number} of {len(bodies)}, asked alone, ended with {outcome}{why}")
        try:
            return orjson.loads(content)["predictions"]
        except (ValueError, KeyError, TypeError):
            raise NoReference(f"the answer to body {number} has no predictions: is this a predict route?") from None

    first = [predictions(number, body) for number, body in enumerate(bodies, 1)]
    again = [predictions(number, body) for number, body in enumerate(bodies[:_ASKED_TWICE], 1)]
    is_steady = all(starmap(lambda a, b: same(a, b, tolerance), zip(first, again, strict=False)))
    return Reference(first, tolerance, is_steady=is_steady)


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


def _hint(outcome: str) -> str:
    hint = _HINTS.get(outcome) or _HINTS.get(outcome[:1])
    return f"; {hint}" if hint else ""


def _detail(content: bytes) -> str:
    try:
        return f": {orjson.loads(content)['detail']}"
    except (ValueError, KeyError, TypeError):
        return ""
