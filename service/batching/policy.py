"""When a batch may leave: the limits of a batch, and the two policies, as values and pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BatchPolicy(StrEnum):
    """`window`: leave on size or latency. `eager`: also as soon as the worker is free and nobody is on the way."""

    WINDOW = "window"
    EAGER = "eager"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one batch may hold. `max_tokens`: budget for `rows * longest row`, None for no budget."""

    max_rows: int
    max_tokens: int | None = None

    def fits(self, rows: int, longest: int) -> bool:
        """Whether a batch of `rows` rows with that longest one is within both limits; one row always is."""
        if rows > self.max_rows:
            return False
        return rows <= 1 or self.max_tokens is None or rows * longest <= self.max_tokens
