"""What a service tells those who place its threads, on its own worker thread, as its models come and go."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from loaders.handle import ModelHandle
from loaders.signature import EncodedText, ImageInput, InputSpec, TabularInput, TextInput
from service import Settings, create_app
from service.http.openapi.probes import READINESS
from service.models import placing
from service.models.examples import example_row
from service.models.metering import LONGEST_FULL_S, PART_S, ModelMeter
from service.models.placing import PlacedModels
from service.models.typical import typical_instance
from service.placement.gil_cost import CallCost
from service.placement.rule import ModelCost, PlacementMode, Unmeasured
from service.placement.threads import Placement

pytestmark = pytest.mark.usefixtures("threads_left_as_they_were")

START_WAIT_S = 10.0
SOON_S = 0.005
CALL = CallCost(0.001, 0.0, 1.0)
ROW = TabularInput(width=3)


def model(spec: InputSpec = ROW, run: Any = None) -> ModelHandle:
    return ModelHandle.from_callable(run or (lambda rows: [0] * len(rows)), name="m", input=spec)


def predict(handle: ModelHandle, rows: list[Any], parameters: Any) -> Any:
    return handle.predict_batch(rows, parameters)


class Costs:
    """Instead of measurements: each call runs once, and takes what the test says; while it is `busy` nothing counts."""

    def __init__(self, wall_s: float = 0.001, share: float = 0.0) -> None:
        self.wall_s = wall_s
        self.share = share
        self.busy = False
        self.steps = threading.Semaphore(0)
        self.has_own_threads: list[bool] = []

    def of_model(self, *facts: Any) -> ModelMeter:
        return ModelMeter(*facts, call_meter=self._of_call)

    def _of_call(self, call: Any, *, has_own_threads: bool = True) -> Any:
        return _CallMeter(self, call, has_own_threads)


class _CallMeter:
    def __init__(self, costs: Costs, call: Any, has_own_threads: bool) -> None:
        self.cost: CallCost | None = None
        self._costs, self._call, self._has_own_threads = costs, call, has_own_threads

    def step(self, may_go_on: Any) -> bool:
        costs = self._costs
        costs.steps.release()
        if costs.busy:
            return False
        self._call()
        costs.has_own_threads.append(self._has_own_threads)
        self.cost = CallCost(costs.wall_s, costs.wall_s * costs.share, 1.0)
        return True


@pytest.fixture
def costs(monkeypatch) -> Costs:
    monkeypatch.setattr(placing, "WARMUP_BUDGET_S", 0.02)
    monkeypatch.setattr(placing, "TRY_BUDGET_S", 0.02)
    return Costs()


def cost_of(costs: Costs, handle: ModelHandle, settings: Settings) -> ModelCost | None:
    meter = costs.of_model(handle, example_row(handle.input), predict, settings)
    while meter.cost is None:
        assert meter.step()
    return meter.cost


def placed_by(costs: Costs, runtime: Any, placement: Placement | None = None) -> PlacedModels:
    made = PlacedModels(
        placement or Watched(), runtime.settings, runtime, measured_by=costs.of_model, first_try_s=SOON_S
    )
    runtime.placed = runtime.thread_placement = made
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

    cost = cost_of(costs, model(spec, run), Settings(max_batch_size=4))
    assert cost is not None
    assert sizes == [1, 4]
    # Preparation has no threads of its own: those that are seen then are left over from the model's warm-up.
    assert costs.has_own_threads == [False, True, True]


def test_a_picture_is_one_as_people_send_it():
    assert 20_000 < len(typical_instance(model(ImageInput(height=8, width=8)))) < 60_000


@pytest.mark.parametrize("single_s, most", [(PART_S / 3, 3), (PART_S, 1), (1.0, 1)])
def test_in_place_of_a_full_batch_that_would_take_long_one_is_run_that_does_not(costs, single_s, most):
    sizes = []

    def run(rows: list[Any]) -> list[int]:
        sizes.append(len(rows))
        return [0] * len(rows)

    costs.wall_s = single_s
    assert single_s * 16 > LONGEST_FULL_S
    assert cost_of(costs, model(run=run), Settings(max_batch_size=16)) is not None
    assert sizes == sorted({1, most})


class Watched(Placement):
    """Two cores, which nobody is put on, and what has been told."""

    def __init__(self, mode: PlacementMode = PlacementMode.AUTO, instances: int = 1) -> None:
        super().__init__(mode, allowed=(0, 1), instances=instances)
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
    placed = placed_by(costs, runtime, placement)
    runtime.start()
    try:
        assert runtime.batcher().wait_started(START_WAIT_S)
        [(_, cost)] = placement.told
        assert cost == (ModelCost(CALL, CALL, CALL) if is_known else Unmeasured.NEVER)
        assert runs == ([1, 4] if warmup else []) + ([1, 4] if is_known else [])
        assert app.test_client().post("/predict", json={"instances": [[1, 2, 3]]}).status_code == 200
        told = app.test_client().get("/healthz").get_json()["thread_placement"]
        assert told == placed.report()
        assert told["to_be_measured"] is None
        assert set(told) == set(READINESS["properties"]["thread_placement"]["required"])
        assert runtime.unload("m")
        assert placement.told[-1] == ("left", ("m", "1"))
    finally:
        runtime.close()


def test_a_model_that_is_loaded_anew_is_measured_anew_and_has_not_left(costs):
    placement = Watched()
    app = create_app(Settings(max_batch_size=2, self_check="off"), model_handle=model())
    runtime = app.extensions["jitney"]
    placed_by(costs, runtime, placement)
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
    placed_by(costs, runtime).seat = seat
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
    assert runtime.thread_placement is runtime.placed


@contextmanager
def started(costs: Costs, placement: Placement, handle: ModelHandle | None = None, **values: Any) -> Iterator[Any]:
    """A service whose threads are placed, with its model loaded."""
    settings = Settings(max_batch_size=2, self_check="off", **values)
    app = create_app(settings, model_handle=model() if handle is None else handle)
    runtime = app.extensions["jitney"]
    placed_by(costs, runtime, placement)
    runtime.start()
    try:
        assert runtime.batcher().wait_started(START_WAIT_S)
        yield app
    finally:
        runtime.close()


def told_of(app: Any) -> Any:
    return app.test_client().get("/healthz").get_json()["thread_placement"]


def wait_for(costs: Costs, steps: int) -> None:
    for _ in range(steps):
        assert costs.steps.acquire(timeout=START_WAIT_S), "it is not tried"


def wait_until_measured(app: Any) -> None:
    pause = threading.Event()
    for _ in range(2000):
        if told_of(app)["to_be_measured"] is None:
            return
        pause.wait(0.005)
    raise AssertionError("it is never measured")


@pytest.mark.parametrize("mode", [PlacementMode.AUTO, PlacementMode.PIN])
def test_what_a_busy_machine_did_not_let_be_measured_is_measured_later(costs, mode, caplog):
    costs.busy, placement = True, Watched(mode)
    caplog.set_level(logging.INFO, "jitney")
    with started(costs, placement) as app:
        told = told_of(app)
        assert told["to_be_measured"]["models"] == ["m/1"]
        assert told["to_be_measured"]["for_s"] >= 0
        assert told["to_be_measured"]["next_try_s"] >= 0
        assert placement.choice.on_one_core is (mode is PlacementMode.PIN)
        while costs.steps.acquire(blocking=False):
            pass
        wait_for(costs, 2)  # it is tried again, and again
        assert app.test_client().post("/predict", json={"instances": [[1, 2, 3]]}).status_code == 200
        costs.busy = False
        wait_until_measured(app)
        assert placement.told == [("costs", Unmeasured.YET), ("costs", ModelCost(CALL, CALL, CALL))]
        assert placement.choice.on_one_core
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if "HTTP threads" in record.msg]
    levels = [level for level, _ in lines]
    assert levels == (["WARNING", "INFO"] if mode is PlacementMode.AUTO else ["INFO", "INFO"])
    if mode is PlacementMode.AUTO:
        assert "too busy" in lines[0][1]


def test_what_was_found_out_before_somebody_disturbed_counts(costs):
    """On a machine that is never quiet for long a model is measured bit by bit."""
    costs.busy = True
    with started(costs, Watched()) as app:
        costs.busy = False
        wait_until_measured(app)
    assert costs.has_own_threads == [False, True, True], "each call is measured once"


def test_a_model_that_has_left_is_measured_no_more(costs):
    costs.busy, placement = True, Watched()
    with started(costs, placement) as app:
        runtime = app.extensions["jitney"]
        thread = runtime.placed.spare_time._thread
        assert runtime.unload("m")
        assert runtime.placed.report()["to_be_measured"] is None
        thread.join(START_WAIT_S)
        assert not thread.is_alive()
    assert placement.told == [("costs", Unmeasured.YET), ("left", ("m", "1"))]


def test_of_several_models_each_is_measured_and_one_line_warns_of_all(costs, caplog):
    costs.busy, placement = True, Watched()
    second = ModelHandle.from_callable(lambda rows: [0] * len(rows), name="second", input=ROW)
    third = ModelHandle.from_callable(lambda rows: [0] * len(rows), name="third", input=ROW)
    with started(costs, placement) as app:
        runtime = app.extensions["jitney"]
        runtime.batcher().call(lambda: runtime.placed.warm(second, predict))
        assert told_of(app)["to_be_measured"]["models"] == ["m/1", "second/1"]
        costs.busy = False
        runtime.batcher().call(lambda: runtime.placed.warm(third, predict))
        wait_until_measured(app)
        assert placement.choice.on_one_core
    measured = [cost for what, cost in placement.told if what == "costs" and isinstance(cost, ModelCost)]
    assert len(measured) == 3
    assert caplog.text.count("too busy") == 1


def test_a_model_that_is_swapped_before_it_was_measured_gives_way_to_the_new_one(costs):
    costs.busy, placement = True, Watched()
    runs: list[int] = []
    with started(costs, placement, model(run=lambda rows: runs.append(len(rows)) or [0] * len(rows))) as app:
        runtime = app.extensions["jitney"]
        first = next(iter(runtime.placed._unfinished.values()))
        runtime.load()
        [second] = runtime.placed._unfinished.values()
        assert second is not first
        costs.busy = False
        wait_until_measured(app)
        assert first.cost is None
        assert second.cost is not None
        runtime.load()
        assert runtime.placed.report()["to_be_measured"] is None


def test_a_model_that_is_measured_at_its_swap_leaves_nothing_of_the_old_one_to_be_measured(costs):
    costs.busy, placement = True, Watched()
    with started(costs, placement) as app:
        runtime = app.extensions["jitney"]
        runtime.placed.spare_time.close()
        costs.busy = False
        runtime.load()
        assert runtime.placed.report()["to_be_measured"] is None
        assert placement.choice.on_one_core


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_model_that_fails_while_it_is_measured_serves_all_the_same_and_is_not_measured_again(costs, caplog, error):
    fails = []

    def run(rows: list[Any]) -> list[int]:
        if fails and rows[0][0] == 0:  # a made-up row
            raise error("not now")
        return [0] * len(rows)

    costs.busy, placement = True, Watched()
    with started(costs, placement, model(run=run)) as app:
        fails.append(1)
        costs.busy = False
        wait_until_measured(app)
        assert app.test_client().post("/predict", json={"instances": [[1, 2, 3]]}).status_code == 200
    assert placement.told[-1] == ("costs", Unmeasured.NEVER)
    assert "could not be measured" in caplog.text


def test_a_model_that_takes_too_long_is_not_measured_again_and_again_while_it_serves(costs, monkeypatch):
    monkeypatch.setattr(placing, "TOO_LONG_S", 0.0)
    pause = threading.Event()

    class Slow(_CallMeter):
        def step(self, may_go_on: Any) -> bool:
            pause.wait(0.05)
            return super().step(may_go_on)

    costs.of_model = lambda *facts: ModelMeter(  # type: ignore[method-assign]
        *facts, call_meter=lambda call, *, has_own_threads=True: Slow(costs, call, has_own_threads)
    )
    costs.busy, placement = True, Watched()
    with started(costs, placement) as app:
        assert told_of(app)["to_be_measured"] is None
        assert "too long" in told_of(app)["reason"]
    assert placement.told == [("costs", Unmeasured.NEVER)]


def test_a_model_for_which_no_row_can_be_made_up_is_never_measured(costs):
    placement = Watched()
    with started(costs, placement, model(TabularInput())) as app:
        assert told_of(app)["to_be_measured"] is None
    assert placement.told == [("costs", Unmeasured.NEVER)]


def test_copies_that_keep_python_to_themselves_are_told_of(costs, caplog):
    handle = ModelHandle.from_callable(lambda rows: [0] * len(rows), name="m", input=ROW, is_thread_safe=True)
    placement = Watched(instances=2)
    with started(costs, placement, handle, model_instances=2):
        pass
    [line] = [record for record in caplog.records if "gains nothing" in record.getMessage()]
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("MODEL_INSTANCES=2 gains nothing for model m version 1")
    assert not placement.choice.on_one_core
    caplog.clear()
    costs.share = 0.9
    with started(costs, Watched(instances=2), handle, model_instances=2):
        pass
    assert "gains nothing" not in caplog.text


def test_copies_are_told_of_when_they_could_be_measured_later(costs, caplog):
    handle = ModelHandle.from_callable(lambda rows: [0] * len(rows), name="m", input=ROW, is_thread_safe=True)
    costs.busy = True
    with started(costs, Watched(instances=2), handle, model_instances=2) as app:
        assert "too busy" not in caplog.text, "nothing would be placed anyway"
        costs.busy = False
        wait_until_measured(app)
    assert "MODEL_INSTANCES=2 gains nothing" in caplog.text


def test_a_service_that_stops_is_not_held_up_by_what_is_to_be_measured(costs):
    costs.busy = True
    with started(costs, Watched()) as app:
        thread = app.extensions["jitney"].placed.spare_time._thread
        app.extensions["jitney"].begin_drain()
        while costs.steps.acquire(blocking=False):
            pass
        assert not costs.steps.acquire(timeout=4 * SOON_S), "nothing is tried when the stop has begun"
    thread.join(START_WAIT_S)
    assert not thread.is_alive()
