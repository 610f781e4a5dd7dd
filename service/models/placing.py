"""What a model costs, measured after its warm-up, for the places of this process's threads."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from loaders.handle import ModelHandle
from service.inputs import InputLimits, prepare
from service.models.examples import example_row
from service.models.typical import typical_instance
from service.models.warmup import Predict
from service.placement.gil_cost import call_cost
from service.placement.rule import ModelCost
from service.placement.threads import Placement, WorkerSeat
from service.settings import Settings

_log = logging.getLogger("jitney")

# A full batch that would take longer than this, seconds, is not measured: it is long, which a single row tells too.
LONGEST_FULL_S = 0.25


class PlacedModels:
    """The models of one runtime as those who place the threads see them: what they cost, and when they come and go.

    *Thread:* the worker's.
    """

    def __init__(self, placement: Placement, settings: Settings) -> None:
        self.placement = placement
        self.seat = WorkerSeat(placement)
        self._settings = settings

    def loads(self) -> None:
        """A model is about to be loaded."""
        self.seat.loads()

    def warm(self, model: ModelHandle, predict: Predict) -> None:
        """A model has been loaded, and warmed up where the settings ask for it."""
        if not self.placement.measures:
            cost = None
        else:
            cost = model_cost(model, predict, self._settings) if self._settings.warmup else None
        self.placement.model_costs(self._key(model), cost)

    def left(self, model: ModelHandle, replaced_by: ModelHandle | None) -> None:
        """A model is served no longer. replaced_by: the same version, loaded anew, if that is why."""
        if replaced_by is None:
            self.placement.model_left(self._key(model))

    def _key(self, model: ModelHandle) -> tuple[object, ...]:
        return self, model.name, model.version


def model_cost(model: ModelHandle, predict: Predict, settings: Settings) -> ModelCost | None:
    """What one row and batches of the model cost; None where no row can be made up, or nothing can be measured now.

    *Thread:* worker, with nobody else busy; it takes a few tenths of a second.
    """
    row = example_row(model.input)
    if row is None:
        return None
    try:
        return _measured(model, row, predict, settings)
    except Exception as error:  # to know it is worth something, but not the start of the service
        _log.warning("what the model costs could not be measured; its threads run on any core", exc_info=error)
        return None


def _measured(model: ModelHandle, row: Any, predict: Predict, settings: Settings) -> ModelCost | None:
    limits = InputLimits(settings.max_image_pixels, settings.max_text_chars)
    instances = [typical_instance(model)]
    columns = model.metadata.get("column_types", ())
    prepared = call_cost(lambda: prepare(model.input, instances, limits, columns), has_own_threads=False)
    single = call_cost(partial(predict, model, [row], {}))
    if prepared is None or single is None:
        return None
    most = settings.max_batch_size
    is_long = single.wall_s * most > LONGEST_FULL_S
    full = single if most == 1 or is_long else call_cost(partial(predict, model, [row] * most, {}))
    return None if full is None else ModelCost(prepared, single, full)
