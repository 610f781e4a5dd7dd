"""Who hears of batches and failures, and how they are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from service.batching.faults import FaultKind, log_error
from service.batching.tickets import Batch, BatchInfo
from service.errors import PredictionFailed

_log = logging.getLogger("jitney.worker")


class BatchListener(Protocol):
    """Hears what the workers do. Called on a worker thread, with no lock held; of several threads by each.

    `on_batch`: a batch has run and its callers are awake; `waits_s` is each row's time in the queue, `errors` has one
    entry for each row that failed. `on_split`: a model call on `size` rows failed and is split. `on_death`: the worker
    has ended by `cause`, everyone has been answered, and the thread is about to end.
    """

    def on_batch(
        self, info: BatchInfo, key: Any, waits_s: Sequence[float], errors: Sequence[PredictionFailed]
    ) -> None: ...

    def on_split(self, kind: FaultKind, size: int, key: Any) -> None: ...

    def on_death(self, cause: BaseException) -> None: ...


class NullListener:
    """Ignores everything; for those who want to hear a part of it, too."""

    def on_batch(
        self, info: BatchInfo, key: Hashable, waits_s: Sequence[float], errors: Sequence[PredictionFailed]
    ) -> None:
        """Ignored."""

    def on_split(self, kind: FaultKind, size: int, key: Hashable) -> None:
        """Ignored."""

    def on_death(self, cause: BaseException) -> None:
        """Ignored."""


# Hears whose rows a batch held: what is told of it, its key, the origin of each row's request, the rows' errors.
OnOrigins = Callable[[BatchInfo, Any, Sequence[object | None], Sequence[PredictionFailed]], None]


class Listeners:
    """Whoever listens to a batcher; nobody need. `on_origins` is told of a batch after the listener.

    *Thread:* any worker's.
    """

    def __init__(self, listener: BatchListener | None = None, on_origins: OnOrigins | None = None) -> None:
        self._listener = listener or NullListener()
        self._on_origins = on_origins

    def batch(self, batch: Batch, info: BatchInfo, errors: Sequence[PredictionFailed]) -> None:
        """It has run and its callers are awake: what is counted here costs none of them any time."""
        rows, key = batch.rows, batch.lane.key
        waits_s = [info.started_at - row.ticket.enqueued_at for row in rows]
        tell(self._listener.on_batch, info, key, waits_s, errors)
        if self._on_origins is not None:
            tell(self._on_origins, info, key, [row.ticket.origin for row in rows], errors)

    def split(self, kind: FaultKind, size: int, key: Any) -> None:
        """A call of the model on so many rows has failed, and is split."""
        tell(self._listener.on_split, kind, size, key)

    def death(self, cause: BaseException) -> None:
        """The worker has ended, and everyone has been answered."""
        tell(self._listener.on_death, cause)


def tell(hear: Callable[..., None], *news: Any) -> None:
    """Call whoever listens, learns, or frees the model; none of them may cost a caller the answer."""
    try:
        hear(*news)
    except Exception as error:
        log_error(_log, logging.ERROR, "a listener of the inference worker failed", error=error)
