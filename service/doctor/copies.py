"""Whether several copies of a model are of any use: found out by calling one that has been loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from loaders.handle import ModelHandle
from service.doctor.findings import Finding, ok, warning
from service.models.examples import example_row
from service.models.metering import ModelMeter
from service.models.warmup import warm_up
from service.placement import samples
from service.placement.cores import allowed_cores
from service.placement.rule import why_copies_gain_nothing
from service.settings import Settings

# For how long it is tried on a machine that others use, seconds.
BUDGET_S = 3.0


def check_copies(
    model: ModelHandle, settings: Settings, measured_by: Callable[..., ModelMeter] = ModelMeter
) -> Finding | None:
    """None where there is one copy only, or it cannot be found out here. Raises what the model raises."""
    row = example_row(model.input)
    if settings.model_instances == 1 or row is None or not samples.are_possible() or len(allowed_cores()) < 2:
        return None
    warm_up(model, settings.max_batch_size, _predict)
    meter, give_up_at = measured_by(model, row, _predict, settings), time.monotonic() + BUDGET_S
    while meter.cost is None:
        if not meter.step() and time.monotonic() > give_up_at:
            return None
    why = why_copies_gain_nothing(meter.cost)
    if why is not None:
        return warning("MODEL_INSTANCES", f"{settings.model_instances} copies gain nothing: {why}", "MODEL_INSTANCES=1")
    return ok("MODEL_INSTANCES", f"{settings.model_instances} copies can compute side by side")


def _predict(model: ModelHandle, rows: list[Any], parameters: Mapping[str, Any]) -> Any:
    return model.predict_batch(rows, parameters)
