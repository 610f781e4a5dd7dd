from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from loaders.handle import ModelHandle
from loaders.registry import _registered, register_loader
from loaders.signature import TabularInput
from service.batching.ceiling import RAISE_AFTER
from service.batching.schedulers import _FACTORIES, Fifo, register_scheduler
from service.errors import Draining, NotReady, OutOfMemory, OutputCountMismatch, PredictionFailed, WorkerDead
from service.lane_key import LaneKey
from service.metrics.batches import BatchMetrics
from service.runtime import Runtime
from service.settings import Settings

GUARD_S = 5.0


class Counted:
    """A model that counts its batches and how often it was freed."""

    def __init__(self, results: Callable[[list[Any]], Any] = list) -> None:
        self.sizes: list[int] = []
        self.freed = 0
        self._results = results

    def __call__(self, rows: list[Any]) -> Any:
        self.sizes.append(len(rows))
        return self._results(rows)

    def free(self) -> None:
        self.freed += 1

    def handle(self) -> ModelHandle:
        return ModelHandle("m", "1", "counted", self, input=TabularInput(width=1), release=self.free)


class CountedLoader:
    """Loads whatever model it was made with."""

    fmt = "counted"

    def __init__(self, load: Callable[[], ModelHandle]) -> None:
        self._load = load

    def load(self, path: Any, **_: Any) -> ModelHandle:
        return self._load()


@pytest.fixture
def make() -> Iterator[Callable[..., Runtime]]:
    made: list[Runtime] = []

    def runtime(model: ModelHandle | None = None, **settings: Any) -> Runtime:
        values = {"max_batch_latency_ms": 0, "warmup": False, **settings}
        made.append(Runtime(Settings(**values), BatchMetrics(CollectorRegistry()), model))
        return made[-1]

    yield runtime
    for one in made:
        assert one.close(GUARD_S)


@pytest.fixture
def load_from(tmp_path) -> Iterator[Callable[[Callable[[], ModelHandle]], dict[str, Any]]]:
    """Settings with which `load` is what reads the model file."""

    def settings(load: Callable[[], ModelHandle]) -> dict[str, Any]:
        register_loader("counted", CountedLoader(load))
        path = tmp_path / "model.counted"
        path.write_bytes(b"x")
        return {"model_path": str(path), "model_format": "counted"}

    yield settings
    _registered.pop("counted", None)


def served(runtime: Runtime) -> ModelHandle:
    model = runtime.model
    assert model is not None
    return model


def submit(runtime: Runtime, *rows: Any) -> list[Any]:
    return runtime.batcher().submit(rows, GUARD_S, key=LaneKey(served(runtime), (), ()))


def started(runtime: Runtime) -> Runtime:
    runtime.start()
    assert runtime.batcher().wait_started(GUARD_S)
    return runtime


def test_starting_twice_starts_one_worker(make):
    runtime = started(make(Counted().handle()))
    batcher = runtime.batcher()
    runtime.start()
    assert runtime.batcher() is batcher
    assert sum(thread.name == "jitney-worker" for thread in threading.enumerate()) == 1


def test_closing_twice_frees_a_loaded_model_once(make, load_from):
    model = Counted()
    runtime = started(make(**load_from(model.handle)))
    assert submit(runtime, 7) == [7]
    assert runtime.close(GUARD_S)
    assert runtime.close(GUARD_S)
    assert model.freed == 1


def test_a_model_that_was_handed_in_is_not_freed(make):
    model = Counted()
    started(make(model.handle())).close(GUARD_S)
    assert model.freed == 0


def test_a_runtime_that_was_closed_before_its_start_does_not_start(make):
    runtime = make(Counted().handle())
    assert runtime.close()
    runtime.start()
    runtime.ensure_started()
    assert runtime.status() is None
    with pytest.raises(Draining):
        runtime.check(None, None, was_accepted=False)


def test_before_the_start_nothing_is_served(make):
    runtime = make(Counted().handle())
    with pytest.raises(NotReady):
        runtime.check(None, None, was_accepted=False)
    with pytest.raises(NotReady):
        runtime.batcher()


class Held:
    """Results that come when they are let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def __call__(self, rows: list[Any]) -> list[Any]:
        self.entered.set()
        assert self.release.wait(GUARD_S)
        return rows


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """Start `call`; the result waits for what it returns or raises."""
    outcomes: list[Any] = []

    def run() -> None:
        try:
            outcomes.append(call())
        except Exception as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> Any:
        thread.join(GUARD_S)
        return outcomes[0]

    return wait


def test_closing_answers_what_is_inside(make):
    held = Held()
    runtime = started(make(ModelHandle.from_callable(held, name="m")))
    answer = in_thread(lambda: submit(runtime, 1))
    assert held.entered.wait(GUARD_S)
    closed = in_thread(lambda: runtime.close(GUARD_S))
    held.release.set()
    assert answer() == [1]
    assert closed() is True


def test_a_model_that_is_still_busy_is_not_freed_under_its_feet(make, load_from):
    held = Held()
    model = Counted(held)
    runtime = started(make(**load_from(model.handle)))
    answer = in_thread(lambda: submit(runtime, 1))
    assert held.entered.wait(GUARD_S)
    assert not runtime.close(0.01)
    assert isinstance(answer(), WorkerDead)
    assert model.freed == 0
    held.release.set()
    assert runtime.close(GUARD_S)
    assert model.freed == 1


class Fatal:
    """Records what `on_fatal` was told."""

    def __init__(self, runtime: Runtime) -> None:
        self.reasons: list[str] = []
        runtime.on_fatal = self.reasons.append


def fail() -> ModelHandle:
    raise RuntimeError("half a file")


@pytest.mark.parametrize("leave, told", [(True, 1), (False, 0)])
def test_a_failed_load_ends_the_process_only_when_it_shall(make, load_from, leave, told):
    runtime = make(**load_from(fail), exit_on_load_error=leave)
    fatal = Fatal(runtime)
    started(runtime)
    assert runtime.close(GUARD_S)
    assert len(fatal.reasons) == told
    assert all("could not be loaded" in reason and "half a file" in reason for reason in fatal.reasons)
    assert "half a file" in str(runtime.load_error)


class NoText(Exception):
    def __str__(self) -> str:
        return str(self.args[7])


def test_a_failed_load_whose_error_cannot_be_shown_ends_the_process_too(make, load_from, caplog):
    def refuse(rows: list[Any]) -> Any:
        raise NoText

    runtime = make(**load_from(Counted(refuse).handle), warmup=True)
    fatal = Fatal(runtime)
    started(runtime)
    assert runtime.close(GUARD_S)
    assert len(fatal.reasons) == 1
    assert "the model could not be loaded" in caplog.text
    assert "NoText" in caplog.text


def test_a_row_whose_error_cannot_be_shown_is_logged_and_counted(make, caplog):
    def refuse(rows: list[Any]) -> Any:
        raise NoText

    runtime = started(make(Counted(refuse).handle()))
    for _ in range(2):
        with pytest.raises(PredictionFailed):
            submit(runtime, 1)
    assert runtime.close(GUARD_S)
    assert caplog.text.count("a row of batch") == 2
    labels = {"model": "m", "version": "1", "reason": "model"}
    assert runtime.metrics.registry.get_sample_value("inference_errors_total", labels) == 2


def test_a_missing_model_path_is_a_failed_load_that_names_the_setting(make):
    runtime = make()
    fatal = Fatal(runtime)
    started(runtime)
    assert runtime.close(GUARD_S)
    assert len(fatal.reasons) == 1
    assert "MODEL_PATH" in fatal.reasons[0]


def test_a_load_that_ends_its_thread_is_a_failed_load(make, load_from):
    def leave() -> ModelHandle:
        raise SystemExit

    runtime = make(**load_from(leave))
    fatal = Fatal(runtime)
    started(runtime)
    assert runtime.close(GUARD_S)
    assert len(fatal.reasons) == 1
    assert runtime.load_error is not None


def test_a_model_whose_warm_up_fails_is_freed(make, load_from):
    def refuse(rows: list[Any]) -> Any:
        raise RuntimeError("no such operator")

    model = Counted(refuse)
    runtime = started(make(**load_from(model.handle), warmup=True))
    assert runtime.close(GUARD_S)
    assert (model.freed, runtime.model) == (1, None)


def test_a_worker_that_dies_is_reported_once(make):
    def die(rows: list[Any]) -> Any:
        raise SystemExit

    runtime = started(make(ModelHandle.from_callable(die, name="m")))
    fatal = Fatal(runtime)
    for _ in range(3):
        with pytest.raises(WorkerDead):
            submit(runtime, 1)
    assert runtime.close(GUARD_S)
    assert fatal.reasons == ["the inference worker ended with SystemExit"]
    assert runtime.load_error is None


def test_the_warm_up_runs_one_row_and_a_full_batch(make):
    model = Counted()
    started(make(model.handle(), warmup=True, self_check="off", max_batch_size=4))
    assert model.sizes == [1, 4]


@pytest.mark.parametrize("rows, seen", [(1, [2]), (2, [2]), (3, [8]), (8, [8]), (10, [8, 2])])
def test_a_batch_is_filled_up_to_an_allowed_size_and_the_answer_cut(make, rows, seen):
    model = Counted()
    runtime = started(make(model.handle(), max_batch_size=8, batch_size_buckets=(2, 8)))
    assert submit(runtime, *range(rows)) == list(range(rows))
    assert model.sizes == seen


@pytest.mark.parametrize(
    "results", [lambda rows: rows[:-1], lambda rows: [*rows, 0], lambda rows: 5, lambda rows: None]
)
def test_a_wrong_number_of_results_is_noticed_in_a_filled_batch_too(make, results):
    runtime = started(make(Counted(results).handle(), max_batch_size=8, batch_size_buckets=(4, 8)))
    with pytest.raises(OutputCountMismatch):
        submit(runtime, 1, 2)


def test_a_bad_row_in_a_filled_batch_fails_alone(make):
    def picky(rows: list[Any]) -> list[Any]:
        if 666 in rows:
            raise ValueError("bad row")
        return rows

    runtime = started(make(Counted(picky).handle(), max_batch_size=4, batch_size_buckets=(4,)))
    with pytest.raises(PredictionFailed) as caught:
        submit(runtime, 1, 666, 2)
    assert caught.value.rows == (1,)


class Narrow:
    """A model that runs out of memory when it sees more than `fits` rows."""

    def __init__(self, fits: int) -> None:
        self.fits = fits
        self.sizes: list[int] = []

    def __call__(self, rows: list[Any]) -> Any:
        self.sizes.append(len(rows))
        if len(rows) > self.fits:
            raise MemoryError
        return rows


def test_a_batch_that_does_not_fit_when_it_is_filled_up_runs_with_its_own_rows(make):
    model = Narrow(4)
    runtime = started(make(ModelHandle("m", "1", "narrow", model), max_batch_size=8, batch_size_buckets=(8,)))
    assert [submit(runtime, row) for row in range(3)] == [[0], [1], [2]]
    assert model.sizes == [8, 1, 1, 1]
    status = runtime.status()
    assert status is not None
    assert status.effective_max_batch_size == 8, "no batch of real rows was too large"


def test_halves_of_a_batch_that_did_not_fit_are_not_filled_up_again(make):
    model = Narrow(4)
    runtime = started(make(ModelHandle("m", "1", "narrow", model), max_batch_size=8, batch_size_buckets=(8,)))
    assert submit(runtime, *range(8)) == list(range(8))
    assert submit(runtime, 1) == [1]
    assert model.sizes == [8, 4, 4, 1]


def test_batches_are_filled_up_to_what_still_fits(make):
    model = Narrow(5)
    runtime = started(make(ModelHandle("m", "1", "narrow", model), max_batch_size=8, batch_size_buckets=(2, 4, 8)))
    assert submit(runtime, *range(5)) == list(range(5))
    assert submit(runtime, *range(3)) == list(range(3))
    assert model.sizes == [8, 5, 4]


def test_batches_are_filled_up_again_once_memory_has_proved_to_be_there(make):
    model = Narrow(2)
    runtime = started(make(ModelHandle("m", "1", "narrow", model), max_batch_size=4, batch_size_buckets=(4,)))
    assert submit(runtime, 1) == [1]
    model.fits = 4
    for _ in range(2 * RAISE_AFTER):
        assert submit(runtime, 1, 2, 3, 4) == [1, 2, 3, 4]
    model.sizes.clear()
    assert submit(runtime, 1) == [1]
    assert model.sizes == [4]


def test_a_row_that_does_not_fit_even_alone_is_told_so(make):
    runtime = started(make(ModelHandle("m", "1", "narrow", Narrow(0)), max_batch_size=4, batch_size_buckets=(4,)))
    with pytest.raises(OutOfMemory):
        submit(runtime, 1)


@pytest.mark.parametrize("leave, told", [(True, 1), (False, 0)])
def test_a_scheduler_that_nobody_registered_is_told_like_a_failed_load(make, leave, told, caplog):
    runtime = make(Counted().handle(), scheduler="nobodys", exit_on_load_error=leave)
    fatal = Fatal(runtime)
    started(runtime)
    assert runtime.close(GUARD_S)
    message = "SCHEDULER: unknown scheduler 'nobodys'; known: auto, cost, fifo, "
    assert message in str(runtime.load_error)
    assert message in caplog.text
    assert "Traceback" not in caplog.text
    assert [message in reason for reason in fatal.reasons] == [True] * told


def test_a_scheduler_that_cannot_be_made_is_told_like_a_failed_load(make, caplog):
    def fail() -> Any:
        raise KeyError("window")

    register_scheduler("failing", fail)
    try:
        runtime = started(make(Counted().handle(), scheduler="failing"))
    finally:
        _FACTORIES.pop("failing")
    assert runtime.close(GUARD_S)
    assert isinstance(runtime.load_error, KeyError)
    assert "Traceback" in caplog.text


def test_a_scheduler_that_is_registered_after_the_settings_were_read_is_used(make):
    used: list[str] = []

    class Noted(Fifo):
        def select(self, *how: Any) -> list[int]:
            used.append("noted")
            return super().select(*how)

    runtime = make(Counted().handle(), scheduler="noted")
    register_scheduler("noted", Noted)
    try:
        assert submit(started(runtime), 1) == [1]
    finally:
        _FACTORIES.pop("noted")
    assert used


def test_warnings_of_a_model_are_logged_at_the_start(make, caplog):
    handle = ModelHandle("m", "1", "callable", list, warnings=("made by another version",))
    started(make(handle))
    assert "made by another version" in caplog.text


def test_a_runtime_shows_its_model_and_state(make):
    runtime = make(Counted().handle())
    assert repr(runtime) == "<Runtime no model draining=False None>"
    started(runtime)
    assert repr(runtime).startswith("<Runtime m/1 draining=False <ThreadedBatcher")
