"""A service whose scheduler learns: what it knows when its first caller comes."""

from __future__ import annotations

import pytest

from loaders import ModelHandle
from loaders.signature import EncodedText, TextInput
from service import Settings, create_app
from service.batching.cost import Cost
from service.batching.tickets import LaneName
from service.lane_key import LaneKey

START_WAIT_S = 10.0


def encode(text: str) -> EncodedText:
    return EncodedText(tuple(range(len(text.split()) + 2)), truncated=False)


@pytest.mark.parametrize("scheduler", ["cost", "auto"])
@pytest.mark.parametrize(("warm_up", "is_known"), [(True, True), (False, False)])
def test_with_a_warm_up_the_first_batch_is_formed_by_what_was_measured(
    warm_up: bool, is_known: bool, scheduler: str
) -> None:
    handle = ModelHandle.from_callable(
        lambda rows: [len(row.ids) for row in rows], name="m", input=TextInput(encode=encode, max_length=64)
    )
    # The self-check finds that a row is always answered alike, and leaves the handle as it is.
    app = create_app(Settings(scheduler=scheduler, max_batch_size=4, warmup=warm_up), model_handle=handle)
    runtime = app.extensions["jitney"]
    runtime.start()
    try:
        assert runtime.batcher().wait_started(START_WAIT_S)
        chooser = runtime.batcher()._worker._scheduler
        by_cost = chooser if isinstance(chooser, Cost) else chooser._cost
        table = by_cost.table(LaneName(LaneKey(runtime.model, (), ())))
        assert bool(table) is is_known
        answer = app.test_client().post("/predict", json={"text": "one two three"})
        assert answer.get_json()["prediction"] == 5
        assert table, "learnt from its first batch at the latest, under the key that callers have"
        told = app.test_client().get("/healthz").get_json()["best_batches"]
        assert {best["tokens"] for best in told} >= {4}, "the padded length of three words and two marks lies near it"
        assert all(0 < best["ms_per_row"] <= best["smallest_ms_per_row"] for best in told)
    finally:
        runtime.close()
