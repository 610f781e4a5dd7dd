"""Batches for models that take only so many rows in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class BatchRange:
    """How many rows one call takes: at least `least`, at most `most`, None for any number."""

    least: int = 1
    most: int | None = None

    def split(self, batch: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """The batch, or parts of it; a part that is too short is filled up with copies of its last row."""
        most = self.most or len(batch)
        for start in range(0, len(batch), most):
            chunk = batch[start : start + most]
            missing = self.least - len(chunk)
            yield np.concatenate([chunk, np.repeat(chunk[-1:], missing, axis=0)]) if missing > 0 else chunk

    def join(self, parts: Sequence[Any], count: int) -> Any:
        """One output for all `count` rows, from what the model gave for each part.

        Cut only where rows were filled up: a wrong number of results must stay visible to whoever counts them.
        """
        if len(parts) == 1 and count >= self.least:
            return parts[0]
        sizes = self._sizes(count)
        if any(
            not hasattr(part, "__len__") or np.ndim(part) == 0 or len(part) != size
            for part, size in zip(parts, sizes, strict=True)
        ):
            return parts[0]
        if isinstance(parts[0], np.ndarray):
            return np.concatenate(parts)[:count]
        return [row for part in parts for row in part][:count]

    def _sizes(self, count: int) -> list[int]:
        most = self.most or count
        return [max(self.least, min(most, count - start)) for start in range(0, count, most)]
