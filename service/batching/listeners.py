"""The listener for a batcher that nobody watches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from service.batching.faults import FaultKind
from service.batching.tickets import BatchInfo
from service.errors import PredictionFailed


class NullListener:
    """Ignores everything."""

    def on_batch(
        self, info: BatchInfo, key: Hashable, waits_s: Sequence[float], errors: Sequence[PredictionFailed]
    ) -> None:
        """Ignored."""

    def on_split(self, kind: FaultKind, size: int, key: Hashable) -> None:
        """Ignored."""

    def on_death(self, cause: BaseException) -> None:
        """Ignored."""
