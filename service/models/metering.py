"""What a model and the preparation of its rows cost, found out a few milliseconds at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from loaders.handle import ModelHandle
from service.inputs import InputLimits, prepare
from service.models.typical import typical_instance
from service.models.warmup import Predict
from service.placement.gil_cost import CallCost, CallMeter
from service.placement.rule import ModelCost
from service.settings import Settings

# Instead of a full batch that would take longer than the first of these, seconds, one is measured that would take no
# longer than the second: of a row alone, what Python does for each batch may be most.
LONGEST_FULL_S, PART_S = 0.25, 0.1


class ModelMeter:
    """Measures the preparation of a row, then a batch of one made-up row, then one of MAX_BATCH_SIZE, or of as many
    rows as do not take long.

    row: prepared. call_meter: what measures a call. `cost`: None until all is known. `found`: how many samples have
    counted so far.

    *Thread:* worker, with nobody else busy.
    """

    def __init__(
        self,
        model: ModelHandle,
        row: Any,
        predict: Predict,
        settings: Settings,
        call_meter: Callable[..., CallMeter] = CallMeter,
    ) -> None:
        self.model = model
        self.cost: ModelCost | None = None
        self.found = 0
        self._row = row
        self._predict = predict
        self._settings = settings
        self._call_meter = call_meter
        self._may_go_on: Callable[[], bool] = lambda: True
        self._steps = self._run()

    def step(self, may_go_on: Callable[[], bool] = lambda: True) -> bool:
        """Take samples for the time of some calls; False where they count for nothing, see `CallMeter.step`.

        Raises whatever the model does; do not go on then.
        """
        self._may_go_on = may_go_on
        counts = next(self._steps, True)
        self.found += counts
        return counts

    def _run(self) -> Generator[bool, None, None]:
        model, settings = self.model, self._settings
        limits = InputLimits(settings.max_image_pixels, settings.max_text_chars)
        instances, columns = [typical_instance(model)], model.metadata.get("column_types", ())
        prepared = self._call_meter(lambda: prepare(model.input, instances, limits, columns), has_own_threads=False)
        prepare_cost = yield from self._until_known(prepared)
        single = full = yield from self._until_known(self._batch_of(1))
        most = settings.max_batch_size
        if single.wall_s * most > LONGEST_FULL_S:
            most = int(PART_S / single.wall_s)
        if most > 1:
            full = yield from self._until_known(self._batch_of(most))
        self.cost = ModelCost(prepare_cost, single, full)

    def _batch_of(self, rows: int) -> CallMeter:
        return self._call_meter(partial(self._predict, self.model, [self._row] * rows, {}))

    def _until_known(self, meter: CallMeter) -> Generator[bool, None, CallCost]:
        while meter.cost is None:
            yield meter.step(self._may_go_on)
        return meter.cost
