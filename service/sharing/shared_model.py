"""The one model of several processes as a front end has it: another process owns it, and tells of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.signature import ImageInput
from service.batching.cost_table import BestSize
from service.batching.faults import text_of
from service.batching.tickets import BatchInfo
from service.lane_key import LaneKey
from service.models.keeper import ModelKeeper
from service.placement.front_end import FrontEndPlacement
from service.recent import RecentBatches
from service.runtime import Runtime
from service.sharing.asking import Lane
from service.sharing.remote import RemoteBatcher


class SharedModel:
    """For `Runtime.share`: what stands behind a `RemoteBatcher`, and listens to it; see `AnyModels`.

    It also has this process run where the model's kind of rows is prepared best. address: where the owner listens.
    slot: tells this front end from the others, see `FrontEndPlacement`.
    """

    is_shared = True

    def __init__(self, runtime: Runtime, address: str, slot: int) -> None:
        self.runtime = runtime
        self._address = address
        self._placement = FrontEndPlacement(runtime.settings.thread_placement, slot)
        runtime.thread_placement = self._placement
        self.recent = RecentBatches()
        self.is_ready = False
        self.load_error: BaseException | None = None
        self.keeper = ModelKeeper(
            runtime.settings,
            runtime.metrics,
            _predict,
            given=runtime.given,
            status_of=lambda model: None,  # noqa: ARG005 - the owner shows its gauges
            on_unused=lambda: self.keeper.sweep(),
        )

    def new_batcher(self, on_the_way: Callable[[], int]) -> RemoteBatcher:
        """One that asks the owner."""
        settings, tracing = self.runtime.settings, self.runtime.tracing
        self.recent = RecentBatches()
        return RemoteBatcher(
            self._address,
            listener=self,
            model_of=_model,
            lane_of=_lane,
            max_batch_size=settings.max_batch_size,
            max_batch_latency_s=settings.max_batch_latency_ms / 1000,
            default_timeout_s=settings.request_timeout_ms / 1000,
            given=self.runtime.given,
            origin_text=_nothing if tracing is None else tracing.origin_text,
            on_the_way=on_the_way,
        )

    def learnt(self) -> list[BestSize] | None:
        """None: the owner learns, and its front ends are not told what."""
        return None

    # What is heard of the owner, on the batcher's own thread.

    def owner_has_loaded(self, model: ModelHandle, sample: Any | None) -> None:
        """The model can answer, for the first time or anew, and what its rows are is known."""
        # Only pictures take long to prepare and leave Python to others meanwhile, so that more cores are of use.
        self._placement.rows_are_known(prepares_beside_python=isinstance(model.input, ImageInput))
        self.keeper.adopt(model, sample)
        self.is_ready = True

    def owner_has_failed(self, error: ModelError) -> None:
        """There is no model, and will be none."""
        self.load_error = error
        if self.runtime.settings.exit_on_load_error:
            self.runtime.on_fatal(f"the model could not be loaded: {text_of(error)}")

    def owner_has_run(self, model: ModelHandle, info: BatchInfo, longest_wait_s: float) -> None:
        """A batch with rows of this process has run; the owner has counted it for the metrics."""
        self.keeper.statistics(model).batch(info)
        self.recent.add(model, info, [longest_wait_s], 0)


def _model(key: LaneKey) -> Any:
    return key.model


def _nothing(_: object) -> None:
    """Nobody traces batches."""


def _lane(key: LaneKey) -> Lane:
    return key.parameters, key.shape


def _predict(*_: Any) -> Any:
    raise RuntimeError("the model is in another process")
