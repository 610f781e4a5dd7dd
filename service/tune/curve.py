"""What a batch costs by its size."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

# A size is on the plateau where it gives this share of the most rows per second that any gives.
PLATEAU_SHARE = 0.95

# Times are told in steps of a microsecond; what comes out as none is half of one.
_LEAST_S = 0.5e-6


@dataclass(frozen=True, slots=True)
class Curve:
    """`points`: (rows, seconds of the whole batch), rising in rows; at least one."""

    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, batch_s_by_rows: Mapping[int, float]) -> Curve:
        """From seconds by rows."""
        return cls(tuple((rows, max(_LEAST_S, time_s)) for rows, time_s in sorted(batch_s_by_rows.items())))

    @property
    def sizes(self) -> list[int]:
        """Those that were measured, rising."""
        return [rows for rows, _ in self.points]

    @property
    def t1_s(self) -> float:
        """A batch of one, or of the smallest size that was measured."""
        return self.points[0][1]

    @property
    def marginal_s(self) -> float:
        """One more row in a batch: the slope of the straight line with the least squares; NaN for a single point."""
        mean_rows = math.fsum(rows for rows, _ in self.points) / len(self.points)
        mean_s = math.fsum(time_s for _, time_s in self.points) / len(self.points)
        spread = math.fsum((rows - mean_rows) ** 2 for rows, _ in self.points)
        if spread == 0:
            return math.nan
        return math.fsum((rows - mean_rows) * (time_s - mean_s) for rows, time_s in self.points) / spread

    def batch_s(self, rows: int) -> float:
        """Seconds of a batch: measured, or on the line between its neighbours; beyond the last in proportion."""
        at = bisect_left(self.points, (rows, -math.inf))
        if at == len(self.points):
            last_rows, last_s = self.points[-1]
            return last_s * rows / last_rows
        above_rows, above_s = self.points[at]
        if above_rows == rows or at == 0:
            return above_s
        below_rows, below_s = self.points[at - 1]
        return below_s + (above_s - below_s) * (rows - below_rows) / (above_rows - below_rows)

    def rows_per_s(self, rows: int) -> float:
        """What the model alone would do in batches of that size, one after the other."""
        return rows / self.batch_s(rows)

    @property
    def plateau(self) -> int:
        """The smallest size that was measured from which larger ones bring next to nothing."""
        most = max(map(self.rows_per_s, self.sizes))
        return next(size for size in self.sizes if self.rows_per_s(size) >= PLATEAU_SHARE * most)

    @property
    def gain(self) -> float:
        """How many times the rows per second of the smallest size the plateau has; near 1, batching does not pay."""
        return self.rows_per_s(self.plateau) / self.rows_per_s(self.sizes[0])
