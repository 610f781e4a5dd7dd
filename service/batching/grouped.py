"""The `grouped` scheduler: rows of similar length share a batch, so that little of it is padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from service.batching.policy import BatchLimits
from service.batching.tickets import Row

# How many waiting rows are compared: the default of MAX_QUEUE_SIZE, so that usually all of them are.
LOOK_AHEAD = 1024

# How many batches in a row may leave without the row whose turn it is. Chosen by simulation with the lengths of
# docs/schedulers.md: more gains nothing for a standing backlog, fewer costs up to a point of saved tokens.
AGE_BOUND = 8

# How much more padding than in the best batch possible, as a share of the batch, is accepted to serve an older row.
TOLERANCE = 0.03


class Grouped:
    """Sorts the waiting rows by length and cuts them into batches; the batch with the oldest row in it leaves.

    Batches that mix short and long rows wait for better company, but no longer than `AGE_BOUND` batches: then the
    row whose turn it is leaves with its nearest neighbours. So a row with p rows in front of it is in one of the
    next (p + 1) * (AGE_BOUND + 1) batches of its lane, whatever arrives meanwhile.
    """

    def look_ahead(self, limits: BatchLimits) -> int:
        """Far beyond one batch."""
        return max(LOOK_AHEAD, limits.max_rows)

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
        """A full batch whenever enough rows wait, longest row first."""
        order = sorted(range(len(rows)), key=lambda position: -rows[position].length)
        shelf = _Shelf([rows[position].length for position in order], limits)
        if shelf.size(0) >= len(order):
            return order
        start = None if passes >= AGE_BOUND else _best_cut(shelf, order)
        if start is None:
            start = shelf.best_around(order.index(0))
        return order[start : start + shelf.size(start)]


def _best_cut(shelf: _Shelf, order: list[int]) -> int | None:
    """Of the cuts with hardly more padding than the best batch possible, the one with the oldest row."""
    least = min(shelf.padding(start) for start in range(shelf.last_start + 1))
    good = [start for start in shelf.cuts() if shelf.padding(start) <= least + TOLERANCE]
    return min(good, key=lambda start: min(order[start : start + shelf.size(start)]), default=None)


class _Shelf:
    """Lengths in descending order, seen as possible batches: each is named by the index of its longest row."""

    def __init__(self, lengths: list[int], limits: BatchLimits) -> None:
        self._lengths = lengths
        self._limits = limits
        self._sums = [0, *accumulate(lengths)]
        self.last_start = len(lengths) - 1
        # Starting later than this would leave rows behind that still fit.
        while self.last_start > 0 and self._room(self.last_start - 1) > len(lengths) - self.last_start:
            self.last_start -= 1

    def size(self, start: int) -> int:
        """Rows of the batch that starts there."""
        return min(self._room(start), len(self._lengths) - start)

    def padding(self, start: int) -> float:
        """The share of the batch that would be padding."""
        size = self.size(start)
        return 1 - (self._sums[start + size] - self._sums[start]) / (size * self._lengths[start])

    def best_around(self, index: int) -> int:
        """The batch with the least padding among those that hold the row at `index`."""
        latest = min(index, self.last_start)
        starts = [start for start in range(latest + 1) if start + self.size(start) > index]
        return min(starts, key=self.padding)

    def cuts(self) -> list[int]:
        """Where full batches start when all rows are cut into as few as possible, at the least total cost.

        Without a token budget one batch may be short; it is put where it saves most, which is usually the
        boundary between long rows and short ones, and it is not among the cuts.
        """
        full = self._limits.max_rows
        if self._limits.max_tokens is not None:
            return self._greedy_cuts()
        lengths = self._lengths
        batches, short = divmod(len(lengths), full)
        if short == 0:
            return list(range(0, len(lengths), full))
        # Cost with the short batch after the first k full ones, up to what all choices have in common.
        before = [0, *accumulate(lengths[0 : batches * full : full])]
        after = [*accumulate(reversed(lengths[short : short + batches * full : full]), initial=0)][::-1]
        costs = [full * (before[k] + after[k]) + short * lengths[k * full] for k in range(batches + 1)]
        k = costs.index(min(costs))
        return [*range(0, k * full, full), *range(k * full + short, len(lengths), full)]

    def _greedy_cuts(self) -> list[int]:
        cuts = []
        start = 0
        while start <= self.last_start:
            cuts.append(start)
            start += self.size(start)
        return cuts

    def _room(self, start: int) -> int:
        budget = self._limits.max_tokens
        if budget is None:
            return self._limits.max_rows
        return max(1, min(self._limits.max_rows, budget // self._lengths[start]))
