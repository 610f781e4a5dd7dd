"""What a service tells those who place its threads, on its own worker thread, as its models come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loaders.handle import ModelHandle
from loaders.signature import EncodedText, ImageInput, InputSpec, TabularInput, TextInput
from service import Settings, create_app
from service.models import placing
from service.models.placing import LONGEST_FULL_S, PlacedModels, model_cost
from service.models.typical import typical_instance
from service.placement.gil_cost import CallCost
from service.placement.rule import PlacementMode
from service.placement.threads import Placement

pytestmark = pytest.mark.usefixtures("threads_left_as_they_were")

START_WAIT_S = 10.0
ROW = TabularInput(width=3)


def model(spec: InputSpec = ROW, run: Any = None) -> ModelHandle:
    return ModelHandle.from_callable(run or (lambda rows: [0] * len(rows)), name="m", input=spec)


def predict(handle: ModelHandle, rows: list[Any], parameters: Any) -> Any:
    return handle.predict_batch(rows, parameters)


class Costs:
    """Instead of a measurement: each call runs once, and takes what the test says."""

    def __init__(self, wall_s: float = 0.001) -> None:
        self.wall_s = wall_s
        self.has_own_threads: list[bool] = []

    def __call__(self, call: Any, *, has_own_threads: bool = True) -> CallCost:
        call()
        self.has_own_threads.append(has_own_threads)
        return CallCost(self.wall_s, 0.0, 1.0)


@pytest.fixture
def costs(monkeypatch) -> Costs:
    made = Costs()
    monkeypatch.setattr(placing, "call_cost", made)
    return made


@pytest.mark.parametrize(
    "spec",
    [
        ROW,
        TabularInput(width=2, columns=("a", "b")),
        TextInput(encode=lambda text: EncodedText(tuple(map(len, text.split())), truncated=False)),
        ImageInput(height=8, width=8),
    ],
)
def test_a_row_of_common_size_is_prepared_and_batches_of_one_and_of_the_most_are_run(spec, costs):
    sizes = []

    def run(rows: list[Any]) -> list[int]:
        sizes.append(len(rows))
        return [0] * len(rows)

    cost = model_cost(model(spec, run), predict, Settings(max_batch_size=4))
    assert cost is not None
    assert sizes == [1, 4]
    # Preparation has no threads of its own: those that are seen then are left over from the model's warm-up.
    assert costs.has_own_threads == [False, True, True]


def test_a_picture_is_one_as_people_send_it():
    assert 20_000 < len(typical_instance(model(ImageInput(height=8, width=8)))) < 60_000


def test_a_full_batch_that_would_take_long_is_not_run_for_that(costs):
    costs.wall_s = LONGEST_FULL_S / 3
    cost = model_cost(model(), predict, Settings(max_batch_size=4))
    assert cost is not None
    assert len(costs.has_own_threads) == 2
    assert cost.full == cost.single


def test_nothing_is_known_of_a_model_for_which_no_row_can_be_made_up(costs):
    assert model_cost(model(TabularInput()), predict, Settings()) is None
    assert not costs.has_own_threads


def test_nothing_is_known_where_the_machine_is_too_busy(monkeypatch):
    monkeypatch.setattr(placing, "call_cost", lambda _call, **_: None)
    assert model_cost(model(), predict, Settings()) is None


def test_a_model_that_fails_while_it_is_measured_serves_all_the_same(costs, caplog):
    def run(rows: list[Any]) -> list[int]:
        raise ValueError("not now")

    assert model_cost(model(run=run), predict, Settings()) is None
    assert "could not be measured" in caplog.text


class Watched(Placement):
    """Two cores, which nobody is put on, and what has been told."""

    def __init__(self, mode: PlacementMode = PlacementMode.AUTO) -> None:
        super().__init__(mode, allowed=(0, 1))
        self.any_core = self.one_core = frozenset()
        self.told: list[tuple[str, Any]] = []

    def model_costs(self, model: Any, cost: Any) -> None:
        self.told.append(("costs", cost))
        super().model_costs(model, cost)

    def model_left(self, model: Any) -> None:
        self.told.append(("left", model[1:]))
        super().model_left(model)


@pytest.mark.parametrize(
    ("mode", "warmup", "is_known"),
    [(PlacementMode.AUTO, True, True), (PlacementMode.AUTO, False, False), (PlacementMode.OFF, True, False)],
)
def test_a_service_measures_its_model_after_its_warm_up_where_that_matters(costs, mode, warmup, is_known):
    placement, runs = Watched(mode), []

    def run(rows: list[Any]) -> list[int]:
        runs.append(len(rows))
        return [0] * len(rows)

    settings = Settings(max_batch_size=4, warmup=warmup, self_check="off")
    app = create_app(settings, model_handle=model(run=run))
    runtime = app.extensions["jitney"]
    runtime.placed = PlacedModels(placement, settings)
    runtime.start()
    try:
        assert runtime.batcher().wait_started(START_WAIT_S)
        [(_, cost)] = placement.told
        assert (cost is not None) is is_known
        assert runs == ([1, 4] if warmup else []) + ([1, 4] if is_known else [])
        assert app.test_client().post("/predict", json={"instances": [[1, 2, 3]]}).status_code == 200
        told = app.test_client().get("/healthz").get_json()["thread_placement"]
        assert told == placement.report()
        assert runtime.unload("m")
        assert placement.told[-1] == ("left", ("m", "1"))
    finally:
        runtime.close()


def test_a_model_that_is_loaded_anew_is_measured_anew_and_has_not_left(costs):
    placement = Watched()
    app = create_app(Settings(max_batch_size=2, self_check="off"), model_handle=model())
    runtime = app.extensions["jitney"]
    runtime.placed = PlacedModels(placement, runtime.settings)
    runtime.start()
    try:
        assert runtime.batcher().wait_started(START_WAIT_S)
        runtime.load()
        assert [what for what, _ in placement.told] == ["costs", "costs"]
    finally:
        runtime.close()


class Seat:
    """What the worker thread does about its place, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.seen.append(name)


def test_the_worker_takes_its_place_around_the_model_also_when_that_fails(costs):
    seat = Seat()

    def run(rows: list[Any]) -> list[int]:
        seat.seen.append("model")
        if rows[0][0] == 9:
            raise ValueError("bad row")
        return [0] * len(rows)

    app = create_app(Settings(warmup=False), model_handle=model(run=run))
    runtime = app.extensions["jitney"]
    runtime.placed = PlacedModels(Watched(), runtime.settings)
    runtime.placed.seat = seat
    runtime.start()
    try:
        assert runtime.batcher().wait_started(START_WAIT_S)
        client = app.test_client()
        assert client.post("/predict", json={"instances": [[1, 2, 3]]}).status_code == 200
        assert client.post("/predict", json={"instances": [[9, 2, 3]]}).status_code == 500
    finally:
        runtime.close()
    assert seat.seen == ["loads", *["calls", "model", "called"] * 2]


def test_nothing_is_placed_where_nobody_knows_the_threads_of_the_server():
    from service.gunicorn_config import _place_threads

    runtime = create_app(Settings(warmup=False), model_handle=model()).extensions["jitney"]
    _place_threads(SimpleNamespace(turn=0), [runtime])
    assert runtime.placed is None
    ours = SimpleNamespace(turn=0, on_thread_start=None)
    _place_threads(ours, [runtime])
    assert ours.on_thread_start == runtime.placed.placement.http_thread_starts
