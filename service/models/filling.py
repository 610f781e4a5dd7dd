"""Batches filled up to the sizes that a compiled model is fast at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loaders.handle import ModelHandle
from service.batching.ceiling import Ceiling
from service.batching.faults import FaultKind, classify


class FilledCalls:
    """Calls models with batches that are filled up to the next of `sizes` by repeating their last row.

    Filling never costs an answer: it keeps within what memory allows now (`fits()`, rows), and when a batch that was
    filled up does not fit, its own rows run alone, and no batch is filled up that far for a while.

    *Thread:* any worker's.
    """

    def __init__(self, sizes: Sequence[int], max_batch_size: int, fits: Callable[[], int]) -> None:
        self._sizes = sizes
        self._fits = fits
        self._ceiling = Ceiling(max_batch_size)

    def __call__(self, model: ModelHandle, rows: list[Any], parameters: Mapping[str, Any]) -> Any:
        """What the model gives for `rows`, without what it gave for the filling."""
        if not self._sizes:
            return model.predict_batch(rows, parameters)
        count = len(rows)
        size = self._filled(count)
        results: Any
        if size > count:
            try:
                results = model.predict_batch(rows + rows[-1:] * (size - count), parameters)
            except Exception as error:
                if classify(error) is not FaultKind.OUT_OF_MEMORY:
                    raise
                self._ceiling.lower(size)
            else:
                self._ceiling.succeeded(size)
                return results[:count] if hasattr(results, "__len__") and len(results) == size else results
        results = model.predict_batch(rows, parameters)
        self._ceiling.succeeded(count)
        return results

    def _filled(self, count: int) -> int:
        """The size to which a batch of `count` rows is filled up."""
        size = next((size for size in self._sizes if size >= count), count)
        return size if size <= min(self._ceiling.rows, self._fits()) else count
