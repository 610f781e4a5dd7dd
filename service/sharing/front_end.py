"""What makes a worker process a front end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from service.batching.tickets import BatchInfo
from service.lane_key import LaneKey
from service.placement.cores import allowed_cores
from service.placement.rule import PlacementMode
from service.runtime import Runtime
from service.sharing.asking import Lane
from service.sharing.cores import core_for, keep_to, works_without_interpreter
from service.sharing.remote import RemoteBatcher


def front_end(address: str, slot: int) -> Callable[[Runtime], RemoteBatcher]:
    """For `Runtime.share`: has the owner that listens at `address` do what the runtime's own worker would.

    slot: tells this front end from the others, see `service.sharing.cores`.
    """

    def connected(runtime: Runtime) -> RemoteBatcher:
        settings = runtime.settings
        return RemoteBatcher(
            address,
            listener=_Placed(runtime, slot),
            model_of=_model,
            lane_of=_lane,
            max_batch_size=settings.max_batch_size,
            max_batch_latency_s=settings.max_batch_latency_ms / 1000,
            default_timeout_s=settings.request_timeout_ms / 1000,
            given=runtime.given,
        )

    return connected


def _model(key: LaneKey) -> Any:
    return key.model


def _lane(key: LaneKey) -> Lane:
    return key.parameters, key.shape


class _Placed:
    """Tells the runtime of the owner, and has this process run where its kind of rows is prepared best."""

    def __init__(self, runtime: Runtime, slot: int) -> None:
        self._runtime = runtime
        self._slot = slot
        self._cores = allowed_cores()
        self.owner_has_failed: Callable[[ModelError], None] = runtime.owner_has_failed
        self.owner_has_run: Callable[[ModelHandle, BatchInfo, float], None] = runtime.owner_has_run

    def owner_has_loaded(self, model: ModelHandle, sample: Any | None) -> None:
        """The model can answer, and what its rows are is known."""
        if self._runtime.settings.thread_placement is not PlacementMode.OFF:
            everywhere = works_without_interpreter(model.input)
            keep_to(self._cores if everywhere else [core_for(self._slot, self._cores)])
        self._runtime.owner_has_loaded(model, sample)
