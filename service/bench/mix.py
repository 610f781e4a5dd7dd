"""Sizes drawn from a mixture, as `--rows 1,1,1,16` and `--words 5-15,5-15,60-120` describe one."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mix:
    """Ranges that are drawn from equally often; one that stands there twice is drawn twice as often."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> Mix:
        """`4`, `1,8` or `1-4,60-120`. Raises ValueError with what is allowed."""
        try:
            ranges = tuple(_range(part) for part in text.split(","))
        except ValueError:
            ranges = ()
        if not ranges or any(not 1 <= low <= high for low, high in ranges):
            raise ValueError("must be numbers of at least 1 or ranges of them, separated by commas, e.g. 1,1,4-8")
        return cls(ranges)

    def draw(self, rng: random.Random) -> int:
        """A size from one of the ranges."""
        return rng.randint(*rng.choice(self.ranges))


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)
