"""Whether copies of a loaded model are of use, by what its calls cost."""

from __future__ import annotations

from typing import Any

import pytest

from loaders.handle import ModelHandle
from loaders.signature import InputSpec, TabularInput
from service.doctor import copies
from service.doctor.copies import check_copies
from service.doctor.findings import Verdict
from service.models.metering import ModelMeter
from service.placement.cores import allowed_cores
from service.placement.gil_cost import CallCost
from service.settings import Settings

pytestmark = pytest.mark.skipif(len(allowed_cores()) < 2, reason="needs two cores, or copies are of no use anyway")

TWO = Settings(model_instances=2, max_batch_size=4)


def model(spec: InputSpec) -> ModelHandle:
    return ModelHandle.from_callable(lambda rows: [0] * len(rows), name="m", input=spec)


def costing(cost: CallCost | None) -> Any:
    """What measures every call so; None: the machine is too busy to."""

    class Meter:
        def __init__(self, call: Any, **_: Any) -> None:
            self.cost: CallCost | None = None

        def step(self, may_go_on: Any) -> bool:
            self.cost = cost
            return cost is not None

    return lambda *facts: ModelMeter(*facts, call_meter=Meter)


@pytest.mark.parametrize(("share", "verdict"), [(0.1, Verdict.WARNING), (0.9, Verdict.OK)])
def test_copies_are_of_use_where_calls_leave_python_to_others(share, verdict):
    found = check_copies(model(TabularInput(width=2)), TWO, costing(CallCost(0.001, 0.001 * share, 1.0)))
    assert found is not None
    assert (found.check, found.verdict) == ("MODEL_INSTANCES", verdict)
    assert (found.fix == "MODEL_INSTANCES=1") is (verdict is Verdict.WARNING)


def test_nothing_is_said_of_one_copy_of_a_model_without_a_row_or_on_a_busy_machine(monkeypatch):
    monkeypatch.setattr(copies, "BUDGET_S", 0.01)
    known = costing(CallCost(0.001, 0.0, 1.0))
    assert check_copies(model(TabularInput(width=2)), Settings(), known) is None
    assert check_copies(model(TabularInput()), TWO, known) is None
    assert check_copies(model(TabularInput(width=2)), TWO, costing(None)) is None
