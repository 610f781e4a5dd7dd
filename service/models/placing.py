"""What the models of this process cost, for those who place its threads: measured at warm-up, or as soon as can be."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from loaders.handle import ModelHandle
from service.models.examples import example_row
from service.models.metering import ModelMeter
from service.models.spare_time import FIRST_S, Host, SpareTime
from service.models.warmup import Predict
from service.placement import samples
from service.placement.rule import ModelCost, Unmeasured, why_copies_gain_nothing
from service.placement.threads import Placement, WorkerSeat
from service.settings import Settings

_log = logging.getLogger("jitney")

# For how long a model is measured, seconds: at its warm-up, and later on at a time, unless a row comes; what has begun
# is done. On a machine that nobody else uses it takes a tenth.
WARMUP_BUDGET_S, TRY_BUDGET_S = 1.0, 0.25

# A model with which that takes so much longer, seconds, is not measured on: a call of it would hold up rows that come.
TOO_LONG_S = 1.0

Key = tuple[object, ...]


class PlacedModels:
    """The models of one runtime as those who place the threads see them: what they cost, and when they come and go.

    A model that others disturbed while it was measured is measured on when nothing waits for the worker thread of
    `host`; what has been found out until then counts. measured_by: what measures a model. first_try_s: see `SpareTime`.

    *Thread:* the worker's, but `report` and `on_one_core` any.
    """

    def __init__(
        self,
        placement: Placement,
        settings: Settings,
        host: Host,
        *,
        measured_by: Callable[[ModelHandle, Any, Predict, Settings], ModelMeter] = ModelMeter,
        first_try_s: float = FIRST_S,
    ) -> None:
        self.placement = placement
        self.seat = WorkerSeat(placement)
        self._settings = settings
        self._measured_by = measured_by
        self._unfinished: dict[Key, ModelMeter] = {}  # only the worker writes it
        self._since = 0.0
        self.spare_time = SpareTime(
            host, self._measure_on, is_wanted=lambda: bool(self._unfinished), first_s=first_try_s
        )

    def loads(self) -> None:
        """A model is about to be loaded."""
        self.seat.loads()

    def warm(self, model: ModelHandle, predict: Predict) -> None:
        """A model has been loaded, and warmed up where the settings ask for it; it takes a moment to measure it."""
        key = self._key(model)
        self._unfinished.pop(key, None)  # of the one that this one replaces
        if (meter := self._meter(model, predict)) is None or not self._advance(meter, WARMUP_BUDGET_S):
            self.placement.model_costs(key, Unmeasured.NEVER)  # also where it takes too long
        elif meter.cost is None:
            self._since = self._since if self._unfinished else time.monotonic()
            self._unfinished[key] = meter
            self.placement.model_costs(key, Unmeasured.YET)
            self.spare_time.begin()
        else:
            self._known(meter, meter.cost)

    def left(self, model: ModelHandle, replaced_by: ModelHandle | None) -> None:
        """A model is served no longer. replaced_by: the same version, loaded anew, if that is why."""
        if replaced_by is None:
            self._unfinished.pop(self._key(model), None)
            self.placement.model_left(self._key(model))

    def close(self) -> None:
        """No model is measured any more."""
        self.spare_time.close()

    @property
    def on_one_core(self) -> bool:
        """Whether the HTTP threads share a core."""
        return self.placement.choice.on_one_core

    def report(self) -> dict[str, Any]:
        """Where the threads run, and what is still to be measured for that; of plain JSON types."""
        unfinished = [f"{meter.model.name}/{meter.model.version}" for meter in list(self._unfinished.values())]
        now = time.monotonic()
        to_be_measured = {
            "models": unfinished,
            "for_s": round(max(0.0, now - self._since), 3),
            "next_try_s": round(max(0.0, self.spare_time.next_at - now), 3),
        }
        return self.placement.report() | {"to_be_measured": to_be_measured if unfinished else None}

    def _meter(self, model: ModelHandle, predict: Predict) -> ModelMeter | None:
        """None where it does not matter what the model costs, or it cannot be found out."""
        if not self.placement.measures or not self._settings.warmup or not samples.are_possible():
            return None
        row = example_row(model.input)
        return None if row is None else self._measured_by(model, row, predict, self._settings)

    def _advance(self, meter: ModelMeter, budget_s: float, may_go_on: Callable[[], bool] = lambda: True) -> bool:
        """Measure until the cost is known, or time is up and nothing has been found out last; False where it failed, or
        takes too long to go on with it.
        """
        give_up_at = time.monotonic() + budget_s
        try:
            while meter.cost is None and may_go_on() and (meter.step(may_go_on) or time.monotonic() < give_up_at):
                pass
        except (Exception, SystemExit) as error:  # to know it is worth something, but not the service
            _log.warning("what the model costs could not be measured; its threads run on any core", exc_info=error)
            return False
        return meter.cost is not None or time.monotonic() < give_up_at + TOO_LONG_S

    def _measure_on(self, may_go_on: Callable[[], bool]) -> bool:
        """Go on with what is unfinished; whether anything has been found out."""
        came_further = False
        self.seat.loads()  # as at their warm-up: native threads that begin now are to find any core
        for key, meter in list(self._unfinished.items()):
            found = meter.found
            is_sound = self._advance(meter, TRY_BUDGET_S, may_go_on)
            came_further |= meter.found > found
            if not is_sound:
                self.placement.model_costs(key, Unmeasured.NEVER)
            elif meter.cost is not None:
                self._known(meter, meter.cost)
            if not is_sound or meter.cost is not None:
                del self._unfinished[key]
        return came_further

    def _known(self, meter: ModelMeter, cost: ModelCost) -> None:
        self.placement.model_costs(self._key(meter.model), cost)
        instances = self._settings.model_instances
        if instances > 1 and (why := why_copies_gain_nothing(cost)) is not None:
            told = "MODEL_INSTANCES=%d gains nothing for model %s version %s: %s; MODEL_INSTANCES=1 serves no less"
            _log.warning(told, instances, meter.model.name, meter.model.version, why)

    def _key(self, model: ModelHandle) -> Key:
        return self, model.name, model.version
