"""The models of this process, and what its worker threads do with them: load, run, free, and tell of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from service.batching.any_batcher import AnyBatcher
from service.batching.batcher import ThreadedBatcher
from service.batching.cost_table import BestSize
from service.batching.faults import FaultKind, log_error, text_of
from service.batching.schedulers import Fifo, LearningScheduler, NoScheduler, Scheduler, make_scheduler
from service.batching.status import BatcherStatus
from service.batching.tickets import BatchInfo
from service.batching.worker import StartFailed
from service.errors import Draining, NotReady, PredictionFailed, WorkerDead
from service.lane_key import LaneKey, is_pipelined, packing, padded_length, plain_lane
from service.metrics.batches import BatchMetrics
from service.models.filling import FilledCalls
from service.models.keeper import ModelKeeper
from service.models.measuring import Learn
from service.models.placing import PlacedModels
from service.models.proving import log_load_failure
from service.recent import RecentBatches
from service.settings import Settings

if TYPE_CHECKING:
    from service.tracing.tracing import Tracing

_log = logging.getLogger("jitney")


class OwnModels:
    """What stands behind a `ThreadedBatcher`, and listens to it; see `AnyModels`.

    batcher: what gives the one that `new_batcher` made, or raises NotReady. placed: what has the threads of this
    process placed, if anything does. on_fatal(reason): called on the worker thread when they cannot serve any more.
    """

    is_shared = False

    def __init__(
        self,
        settings: Settings,
        metrics: BatchMetrics,
        *,
        given: ModelHandle | None,
        tracing: Tracing | None,
        batcher: Callable[[], AnyBatcher],
        placed: Callable[[], PlacedModels | None],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._tracing = tracing
        self._batcher = batcher
        self._placed = placed
        self._on_fatal = on_fatal
        self.recent = RecentBatches()
        self.is_ready = False  # the worker sets it
        self.load_error: BaseException | None = None
        self._scheduler_fault: Exception | None = None
        self._learning: LearningScheduler | None = None
        self._predict = FilledCalls(
            settings.batch_size_buckets or (), settings.max_batch_size, lambda: batcher().effective_max_batch_size
        )
        self.keeper = ModelKeeper(
            settings,
            metrics,
            self._predict,
            given=given,
            status_of=self._status_of,
            on_unused=self._sweep_soon,
            learning=self._learn,
            placed=placed,
        )

    def new_batcher(self, on_the_way: Callable[[], int]) -> ThreadedBatcher:
        """One whose worker thread loads the models when it starts, and frees them at its end."""
        settings = self._settings
        self.recent = RecentBatches()
        return ThreadedBatcher(
            self._run,
            max_batch_size=settings.max_batch_size,
            max_batch_latency_s=settings.max_batch_latency_ms / 1000,
            max_batch_tokens=settings.max_batch_tokens,
            policy=settings.batch_policy,
            scheduler=self._scheduler(),
            max_queue_size=settings.max_queue_size,
            default_timeout_s=settings.request_timeout_ms / 1000,
            instances=settings.model_instances,
            padded_length=padded_length,
            on_start=self._load,
            on_stop=self._free,
            listener=self,
            on_origins=None if self._tracing is None else self.on_origins,
            on_the_way=on_the_way,
            is_pipelined=is_pipelined,
            packing=packing,
        )

    def learnt(self) -> list[BestSize] | None:
        """The batches that are best for the default model, by length; None where nothing is learnt. *Thread:* any."""
        scheduler, model = self._learning, self.keeper.default
        if scheduler is None or model is None:
            return None
        return scheduler.learnt(plain_lane(model)) or None

    def _scheduler(self) -> Scheduler:
        """The scheduler of the settings. Where there is none, the worker thread says so, like all that stops a load."""
        try:
            self._scheduler_fault = None
            scheduler = make_scheduler(self._settings.scheduler)
            self._learning = scheduler if isinstance(scheduler, LearningScheduler) else None
            return scheduler
        except Exception as error:
            self._scheduler_fault = error
            return Fifo()

    # What the keeper asks for.

    def _status_of(self, model: ModelHandle) -> Callable[[], BatcherStatus]:
        """What tells how much waits for a model."""
        return lambda: self._batcher().status(lambda key: key.model is model)

    def _sweep_soon(self) -> None:
        with suppress(NotReady, Draining, WorkerDead):  # the end of the worker frees everything
            self._batcher().post(self.keeper.sweep)

    def _learn(self, model: ModelHandle) -> Learn | None:
        """What learns how long batches of a model take when its callers give no parameters; None where nothing does."""
        if (scheduler := self._learning) is None:
            return None
        lane = plain_lane(model)
        return lambda rows, length, seconds: scheduler.learn(lane, rows, length, seconds)

    # What the worker thread calls.

    def on_batch(
        self, info: BatchInfo, key: LaneKey, waits_s: Sequence[float], errors: Sequence[PredictionFailed]
    ) -> None:
        """A batch has run."""
        for error in errors:
            whose = f" in request {error.request_id}" if error.request_id else ""
            told = "a row of batch %d failed%s: %s"
            log_error(_log, logging.ERROR, told, info.batch_id, whose, error, error=error.__cause__)
        self._metrics.batch(key.model, info, waits_s, errors)
        self.keeper.statistics(key.model).batch(info, len(errors))
        self.recent.add(key.model, info, waits_s, len(errors))

    def on_origins(
        self, info: BatchInfo, key: LaneKey, origins: Sequence[object | None], errors: Sequence[PredictionFailed]
    ) -> None:
        """A batch has run; asked for only where it is recorded for whom."""
        if self._tracing is not None:
            self._tracing.batch(key.model, info, origins, errors)

    def on_split(self, kind: FaultKind, size: int, key: LaneKey) -> None:
        """A model call failed and is split."""
        self._metrics.split(key.model, kind)
        _log.warning("a batch of %d rows failed (%s) and is split to find the cause", size, kind)

    def on_death(self, cause: BaseException) -> None:
        """The worker has ended and everyone has been answered."""
        if self.load_error is None and not self.is_ready:
            self.load_error = cause
        if self.load_error is None:
            self._on_fatal(f"the inference worker ended with {type(cause).__name__}")
        elif self._settings.exit_on_load_error:
            self._on_fatal(f"the model could not be loaded: {text_of(self.load_error)}")

    def _load(self) -> None:
        try:
            if isinstance(self._scheduler_fault, NoScheduler):
                raise ModelError(f"SCHEDULER: {self._scheduler_fault}") from self._scheduler_fault
            if self._scheduler_fault is not None:
                raise self._scheduler_fault
            self.keeper.start()
        except Exception as error:
            self.load_error = error
            log_load_failure("the model", error)
            raise StartFailed from error
        self.is_ready = True

    def _free(self) -> None:
        self.keeper.close()
        self._metrics.ended()

    def _run(self, rows: list[Any], key: LaneKey) -> Any:
        parameters = {name: value for name, _, value in key.parameters}
        placed = self._placed()
        if placed is None:
            return self._predict(key.model, rows, parameters)
        placed.seat.calls()
        try:
            return self._predict(key.model, rows, parameters)
        finally:
            placed.seat.called()
