"""When a batch may leave: the limits of a batch, and the two policies, as values and pure functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

# How long the eager policy keeps a row waiting for requests that nobody has read yet, seconds. A request that is read
# within that time makes the batch larger; one that takes longer would cost the others more than it could save them.
UNREAD_WAIT_S = 0.003


class BatchPolicy(StrEnum):
    """`window`: leave on size or latency. `eager`: also as soon as the worker is free and nobody is on the way."""

    WINDOW = "window"
    EAGER = "eager"


def nobody() -> int:
    """What a program without a server of its own knows of requests that are still to come."""
    return 0


def side_by_side(key: Hashable) -> bool:  # noqa: ARG001
    """What a batcher takes for granted of models: that several threads can run their batches at the same time."""
    return False


PackedShape = Callable[[Sequence[int]], tuple[int, int]]
"""To rows of such lengths, in tokens: in how many rows, and of what length, the model computes them together."""


def each_alone(key: Hashable) -> PackedShape | None:  # noqa: ARG001
    """What a batcher takes for granted of models: that no two rows of a batch share one of the model's."""
    return None


@dataclass(frozen=True, slots=True)
class Company:
    """How long the oldest row of a lane waits for others, counted from its admission.

    latency_s: the latency trigger, whatever the policy. on_the_way: how many requests have reached the server and have
    not been announced to the batcher yet; asked by the eager policy only, once for each look of the worker.
    """

    policy: BatchPolicy
    latency_s: float
    on_the_way: Callable[[], int] = nobody

    def unread(self) -> int:
        """How many requests the eager policy may wait for although no thread has read them."""
        return self.on_the_way() if self.policy is BatchPolicy.EAGER else 0

    def patience_s(self, *, announced: int, unread: int) -> float:
        """Seconds; `latency_s` at most. announced: requests that a thread is reading or preparing."""
        if self.policy is BatchPolicy.WINDOW or announced:
            return self.latency_s
        return min(self.latency_s, UNREAD_WAIT_S) if unread else 0.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one batch may hold. `max_tokens`: budget for `rows * longest row`, None for no budget.

    `packs`: no limit, but what a scheduler has to know: short rows share one of the model's, so that a batch costs what
    its rows are long together, and rows of different length may share it at no loss. The budget counts as ever.
    """

    max_rows: int
    max_tokens: int | None = None
    packs: bool = False
    share: int | None = None

    def fits(self, rows: int, longest: int) -> bool:
        """Whether a batch of `rows` rows with that longest one is within both limits; one row always is."""
        if rows > self.max_rows:
            return False
        return rows <= 1 or self.max_tokens is None or rows * longest <= self.max_tokens
