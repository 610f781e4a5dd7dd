"""The `cost` scheduler: the batch that is predicted to take the least time for what is in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from service.batching.cost_table import BestSize, CostTable
from service.batching.policy import BatchLimits
from service.batching.tickets import LaneName, Row

# How many waiting rows are looked at: the default of MAX_QUEUE_SIZE, so that usually all of them are.
LOOK_AHEAD = 1024

# Lanes of which something is remembered. Lanes are made of what requests ask for, so there can be any number.
MOST_TABLES = 64

# What costs at most this much more than the best is as good: a table is not more exact than that. Of such batches the
# largest leaves that is no more than the thread's share, and for such a gain nobody is kept waiting.
TOLERANCE = 0.03

# Every so many batches one is half or twice as large as would be best, so that what is known of those stays fresh.
PROBE_EVERY = 32

# Up to this many rows each size of a batch is tried, beyond it one in eight.
EVERY_SIZE = 32


class Cost:
    """Sorts the waiting rows by length and chooses the oldest and those next to it, as many as cost least together.

    The predicted time of a batch is compared with what its rows would take in the best batches of their own lengths:
    so a long row costs nobody for being long, only for making others longer. Every batch holds the row whose turn it
    is, so a row with p rows in front of it is in one of the next p + 1 batches of its lane, whatever arrives meanwhile.

    Where the model packs rows (`BatchLimits.packs`) they make each other no longer, and nothing is sorted: as many
    leave from the front as cost least together.

    *Thread:* worker.
    """

    def __init__(self) -> None:
        # By the hash of a lane's name: the name itself would keep a model alive that has been unloaded.
        self._tables: OrderedDict[int, CostTable] = OrderedDict()
        self._batches = 0
        # What `enough` has answered since something was last learnt: it is asked once for each request that comes.
        self._answers: dict[tuple[int, int, int], int] = {}

    def look_ahead(self, limits: BatchLimits) -> int:
        """Far beyond one batch."""
        return max(LOOK_AHEAD, limits.max_rows)

    def table(self, lane: LaneName) -> CostTable:
        """What is known of a lane, which is also what is learnt of it."""
        key = hash(lane)
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = CostTable()
            if len(self._tables) > MOST_TABLES:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        return table

    def learnt(self, lane: LaneName) -> list[BestSize]:
        """The size of batch that is best for each length of the lane, as far as it is known. *Thread:* any."""
        table = self._tables.get(hash(lane))
        return [] if table is None else table.best_sizes()

    def learn(self, lane: LaneName, rows: int, length: int, seconds: float) -> None:
        """A batch of the lane has run in one piece."""
        self.table(lane).observe(rows, length, seconds)
        self._answers.clear()

    def enough(self, front: Row, limits: BatchLimits) -> int:
        """With so many rows waiting, further ones would not make the batch cheaper for each of its rows."""
        question = hash(front.ticket.lane), front.length, limits.max_rows
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = self._enough(front, limits)
        return answer

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:  # noqa: ARG002
        """A batch with rows[0] in it: of packed rows the first, of others some alike in length, longest first."""
        if len(rows) == 1:
            return [0]
        self._batches += 1
        table = self.table(rows[0].ticket.lane)
        if limits.packs:
            front = _Front(rows, limits)
            return front.positions[: front.best(table, self._probed())]
        order = sorted(range(len(rows)), key=lambda position: -rows[position].length)
        around = _Around(order.index(0), np.array([rows[position].length for position in order]), limits)
        start, size = around.best(table, self._probed())
        return order[start : start + size]

    def _enough(self, front: Row, limits: BatchLimits) -> int:
        table = self.table(front.ticket.lane)
        if not table:
            return limits.max_rows
        sizes = _sizes(limits.max_rows)
        per_row = table.seconds(sizes, front.length) / sizes
        return int(sizes[per_row <= per_row.min() * (1 + TOLERANCE)][0])

    def _probed(self) -> float:
        """By what the best size is to be multiplied this time."""
        turn, is_odd = divmod(self._batches, PROBE_EVERY)
        if is_odd:
            return 1.0
        return 2.0 if turn % 2 else 0.5


class _Front:
    """The batches of packed rows that are the front of a line: the first row, the first two, and so on.

    Each costs what it would if all of its rows were of their mean length. `positions`: of the rows in the line. Those
    are left out that would break the token budget, which counts rows times the longest; their turn comes.
    """

    def __init__(self, rows: Sequence[Row], limits: BatchLimits) -> None:
        self.positions: list[int] = []
        longest = 0
        for position, row in enumerate(rows):
            if len(self.positions) == limits.max_rows:
                break
            if limits.fits(len(self.positions) + 1, max(longest, row.length)):
                longest = max(longest, row.length)
                self.positions.append(position)
        self._share = limits.share
        self._counts = np.arange(1, len(self.positions) + 1)
        self._tokens = np.cumsum([rows[position].length for position in self.positions])

    def best(self, table: CostTable, times: float) -> int:
        """How many rows the one of the batches has that cost least for a token; or `times` as many."""
        per_token = table.seconds(self._counts, self._tokens / self._counts) / self._tokens
        good = self._counts[per_token <= per_token.min() * (1 + TOLERANCE)]
        best = int(good[_fairest(good, self._share)])
        return min(max(1, int(best * times)), len(per_token))


class _Around:
    """The batches that hold one row of a line that is sorted by length, longest first: each a piece of the line.

    Any other batch with the same longest row and as many rows would hold shorter ones in place of longer ones, and so
    do less for the same time.
    """

    def __init__(self, front: int, lengths: NDArray[np.int64], limits: BatchLimits) -> None:
        self._lengths = lengths
        self._max_rows = limits.max_rows
        self._share = limits.share
        most = min(limits.max_rows, len(lengths))
        starts = front + 1 - _sizes(min(most, front + 1))[:, None]
        sizes = _sizes(most)[None, :]
        allowed = (starts + sizes > front) & (starts + sizes <= len(lengths))
        if limits.max_tokens is not None:
            allowed &= (sizes == 1) | (sizes * lengths[starts] <= limits.max_tokens)
        pairs = np.broadcast_arrays(starts, sizes)
        self._starts, self._sizes = pairs[0][allowed], pairs[1][allowed]

    def best(self, table: CostTable, times: float) -> tuple[int, int]:
        """Where the best batch starts, and its size; or that of `times` the best size where there is such a one."""
        starts, sizes = self._starts, self._sizes
        worth = np.array([*accumulate(self._alone(table), initial=0.0)])
        waste = table.seconds(sizes, self._lengths[starts]) / (worth[starts + sizes] - worth[starts])
        good = np.flatnonzero(waste <= waste.min() * (1 + TOLERANCE))
        chosen = good[_fairest(sizes[good], self._share)]
        if times != 1.0:
            probes = np.flatnonzero(sizes == int(sizes[chosen] * times))
            if len(probes):
                chosen = probes[waste[probes].argmin()]
        return int(starts[chosen]), int(sizes[chosen])

    def _alone(self, table: CostTable) -> list[float]:
        """For each row of the line, its share in seconds of the best batch of rows that are all as long as it is."""
        unique, places = np.unique(self._lengths, return_inverse=True)
        sizes = _sizes(self._max_rows)[:, None]
        least = (table.seconds(sizes, unique[None, :]) / sizes).min(axis=0)
        alone: list[float] = least[places].tolist()
        return alone


def _fairest(sizes: NDArray[np.int64], share: int | None) -> int:
    """Where the largest of these sizes is that is no more than `share`; the smallest, where all are more."""
    if share is None:
        return int(sizes.argmax())
    fair = sizes <= share
    return int(np.where(fair, sizes, 0).argmax() if fair.any() else sizes.argmin())


def _sizes(most: int) -> NDArray[np.int64]:
    """Sizes from 1 to `most`, rising; all of them as far as that is few."""
    few = np.arange(1, min(most, EVERY_SIZE) + 1)
    if most <= EVERY_SIZE:
        return few
    return np.unique(np.concatenate([few, np.arange(EVERY_SIZE, most, EVERY_SIZE // 4), [most]]))
