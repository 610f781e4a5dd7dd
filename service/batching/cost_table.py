"""What a batch of so many rows of such a length costs in time: a small table, kept fresh by what batches took."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Cells stand for sizes 1, 2, 4, ... 1,024 and lengths 1, 2, 4, ... 8,192; beyond them the last cells count.
SIZE_CELLS = 11
LENGTH_CELLS = 14

# Until anything is known, a batch counts as its tokens and this many more for the call itself: so much that full
# batches of similar length look best, as they do to whoever knows nothing of the model.
CALL_TOKENS = 2048.0

# How far a batch that took longer than is known moves that, as a share of the difference; and the largest difference
# that it counts for, as a factor: a batch during which the machine did something else says nothing about the model.
STEP = 0.2
MOST_SURPRISE = 2.0

# How far one moves it that took less time. Nothing makes a batch faster than it is: what was known was held up.
FASTER_STEP = 0.5


class BestSize(NamedTuple):
    """Of rows of `length` tokens those batches cost least for a row that have `rows` rows.

    `seconds`: such a batch. `smallest_s`: a batch of the smallest size that is known, `smallest_rows`.
    """

    length: int
    rows: int
    seconds: float
    smallest_rows: int
    smallest_s: float


class CostTable:
    """Predicts the seconds of a batch from what was observed of others.

    A cell holds by which factor batches of its size and length differ from a plain guess; between cells the factors
    are interpolated, and an unknown cell counts as the nearest known one. *Thread:* worker.
    """

    def __init__(self) -> None:
        self._factors = np.zeros(SIZE_CELLS * LENGTH_CELLS)  # logarithms
        self._known: list[int] = []
        self._nearest = np.zeros(SIZE_CELLS * LENGTH_CELLS, dtype=np.intp)
        self._filled = np.zeros((SIZE_CELLS, LENGTH_CELLS))

    def __bool__(self) -> bool:
        """Whether anything has been observed."""
        return bool(self._known)

    def seconds(self, rows: ArrayLike, length: ArrayLike) -> Floats:
        """For batches of `rows` rows with a longest one of `length` tokens; broadcast against each other.

        Before anything has been observed, figures that can be compared with each other only.
        """
        rows, length = np.asarray(rows, dtype=float), np.asarray(length, dtype=float)
        size, size_part = _place(rows, SIZE_CELLS)
        column, column_part = _place(length, LENGTH_CELLS)
        filled = self._filled
        low = filled[size, column] * (1 - column_part) + filled[size, column + 1] * column_part
        high = filled[size + 1, column] * (1 - column_part) + filled[size + 1, column + 1] * column_part
        seconds: Floats = (CALL_TOKENS + rows * length) * np.exp(low * (1 - size_part) + high * size_part)
        return seconds

    def observe(self, rows: int, length: int, seconds: float) -> None:
        """A batch of that size and longest row took so long; nothing is learnt of one that took no time at all."""
        if not seconds > 0:
            return
        factor = math.log(seconds / (CALL_TOKENS + rows * length))
        surprise = math.log(seconds / float(self.seconds(rows, length)))
        step = FASTER_STEP * surprise if surprise < 0 else STEP * min(surprise, math.log(MOST_SURPRISE))
        size, size_part = _place(np.float64(rows), SIZE_CELLS)
        column, column_part = _place(np.float64(length), LENGTH_CELLS)
        for cell, weight in (
            ((size, column), (1 - size_part) * (1 - column_part)),
            ((size, column + 1), (1 - size_part) * column_part),
            ((size + 1, column), size_part * (1 - column_part)),
            ((size + 1, column + 1), size_part * column_part),
        ):
            if weight > 0:
                self._move(int(cell[0]) * LENGTH_CELLS + int(cell[1]), factor, step * float(weight))
        self._filled = self._factors[self._nearest].reshape(SIZE_CELLS, LENGTH_CELLS)

    def known(self) -> list[tuple[int, int, float]]:
        """Rows, length and seconds of every cell that something is known of, smallest first; for people."""
        cells = np.array(sorted(self._known), dtype=np.intp)
        rows, lengths = 2 ** (cells // LENGTH_CELLS), 2 ** (cells % LENGTH_CELLS)
        # At once, as health checks ask for it and may come often.
        return list(zip(rows.tolist(), lengths.tolist(), self.seconds(rows, lengths).tolist(), strict=True))

    def best_sizes(self) -> list[BestSize]:
        """For each length that something is known of, shortest first; for people. *Thread:* any."""
        by_length: dict[int, list[tuple[int, float]]] = {}
        for rows, length, seconds in self.known():
            by_length.setdefault(length, []).append((rows, seconds))
        return [
            BestSize(length, *min(sizes, key=lambda size: size[1] / size[0]), *sizes[0])
            for length, sizes in sorted(by_length.items())
        ]

    def _move(self, cell: int, factor: float, step: float) -> None:
        if cell in self._known:
            self._factors[cell] += step
            return
        self._factors[cell] = factor
        self._known.append(cell)
        places = np.arange(SIZE_CELLS * LENGTH_CELLS)[:, None]
        known = np.array(self._known)[None, :]
        # A difference in size says more about a model than one in length: the nearest is looked for in the same row.
        away = 2 * abs(places // LENGTH_CELLS - known // LENGTH_CELLS)
        away += abs(places % LENGTH_CELLS - known % LENGTH_CELLS)
        self._nearest = known[0][away.argmin(axis=1)]


def _place(values: Any, cells: int) -> tuple[NDArray[np.intp], Floats]:
    """Between which cells the values lie: the lower one, and how far from it towards the next."""
    exact = np.clip(np.log2(np.maximum(values, 1.0)), 0, cells - 1)
    lower = np.minimum(exact.astype(np.intp), cells - 2)
    return lower, exact - lower
