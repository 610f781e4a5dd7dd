"""A service whose models are there in several copies, one for each worker thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.callers import Callers, all_at_once
from support.models import GUARD_S
from support.repositories import put, registered, served_from

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.signature import TabularInput
from service import create_app
from service.errors import DeadlineExceeded
from service.health import models, readiness
from service.http.openapi.probes import READINESS
from service.lane_key import LaneKey
from service.models.copies import Copies, copies_of
from service.runtime import Runtime
from service.settings import Settings, SettingsError


class Copy:
    """One loaded copy of a version: it answers with that, and counts whatever nobody may do to it."""

    def __init__(self, loader: Loader, version: str) -> None:
        self.version = version
        self.callers: set[int] = set()
        self.calls = 0
        self.freed = 0
        self._loader = loader
        self._is_free = threading.Lock()

    def __call__(self, rows: list[Any]) -> list[Any]:
        if not self._is_free.acquire(blocking=False):
            self._loader.faults.append("a copy was called twice at a time")
            return []
        try:
            self.calls += 1
            self._loader.inside(self)
            if self.freed:
                self._loader.faults.append("a copy was called, or in use, after it was freed")
            self.callers.add(threading.get_ident())
            return [self.version] * len(rows)
        finally:
            self._is_free.release()

    def free(self) -> None:
        if self._is_free.locked():
            self._loader.faults.append("a copy was freed while it was in use")
        self.freed += 1


class Loader:
    """Loads `Copy` after `Copy`. `inside`: what happens within a call. `before`: what happens at the n-th load."""

    fmt = "copied"

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.faults: list[str] = []
        self.inside: Callable[[Copy], object] = lambda copy: None
        self.before: dict[int, Callable[[Path], object]] = {}
        self.told: list[int] = []
        self.device = "cpu"
        self.is_thread_safe = False

    def load(self, path: Path, *, name: str, version: str, metadata: Any = None) -> ModelHandle:
        self.before.get(len(self.copies), lambda path: None)(path)
        self.told.append(metadata.get("instances", 1))
        copy = Copy(self, version)
        self.copies.append(copy)
        return ModelHandle(
            name,
            version,
            self.fmt,
            copy,
            input=TabularInput(width=1),
            device=self.device,
            release=copy.free,
            is_thread_safe=self.is_thread_safe,
        )


@pytest.fixture
def loader() -> Iterator[Loader]:
    with registered(Loader()) as loader:
        yield loader
    assert loader.faults == []


@pytest.fixture
def serve(tmp_path: Path, loader: Loader) -> Iterator[Callable[..., Runtime]]:
    """A started runtime over a repository of these versions of the model "m", each with two copies."""
    with served_from(tmp_path, loader.fmt, max_batch_size=1, model_instances=2, warmup=False) as serve:
        yield lambda *versions, **settings: serve(*(f"m/{version}" for version in versions), **settings)
    assert all(copy.freed == 1 for copy in loader.copies)


def ask(runtime: Runtime, rows: int = 1, timeout_s: float = GUARD_S) -> list[str]:
    with runtime.lease(None, None) as model:
        answers = runtime.batcher().submit([0] * rows, timeout_s, key=LaneKey(model, (), ()))
        assert answers == [model.version] * rows
        return answers


def test_each_worker_thread_calls_a_copy_of_its_own(serve, loader):
    both = threading.Barrier(2, timeout=GUARD_S)
    loader.inside = lambda copy: both.wait()
    runtime = serve("1")
    for _ in range(10):
        assert ask(runtime, rows=2) == ["1", "1"]
    first, second = loader.copies
    assert (first.calls, second.calls) == (10, 10)
    assert len(first.callers) == len(second.callers) == 1
    assert first.callers != second.callers
    assert loader.told == [2, 2], "each knows how many share the CPUs"


def test_many_callers_get_their_answers_from_two_copies(serve, loader):
    runtime = serve("1", max_batch_size=8)
    outcomes = all_at_once([lambda: [ask(runtime, rows=1 + turn % 3) for turn in range(20)]] * 64)
    assert all(isinstance(outcome, list) for outcome in outcomes), outcomes


def test_every_copy_is_warm_before_the_service_is_ready(serve, loader):
    runtime = serve("1", warmup=True, max_batch_size=4)
    assert all(copy.calls >= 2 for copy in loader.copies), "a batch of one, and a full one"
    assert readiness(runtime)[0]


def test_the_thread_that_has_warmed_up_all_copies_calls_its_own_again(serve, loader):
    runtime = serve("1", warmup=True)
    both = threading.Barrier(2, timeout=GUARD_S)
    loader.inside = lambda copy: both.wait()
    before = [copy.calls for copy in loader.copies]
    assert ask(runtime, rows=2) == ["1", "1"]
    assert [copy.calls - calls for copy, calls in zip(loader.copies, before, strict=True)] == [1, 1]


def test_one_instance_has_one_copy_and_nothing_in_between(serve, loader):
    runtime = serve("1", model_instances=1)
    assert ask(runtime) == ["1"]
    assert len(loader.copies) == 1
    model = runtime.model
    assert model is not None
    assert model.predict is loader.copies[0]
    assert copies_of(model) == 1
    assert "instances" not in readiness(runtime)[1]


def test_health_tells_how_many_there_are_and_how_many_are_busy(serve, loader):
    inside, go = threading.Event(), threading.Event()

    def hold(copy: Copy) -> None:
        inside.set()
        assert go.wait(GUARD_S)

    runtime = serve("1")
    loader.inside = hold
    assert readiness(runtime)[1]["instances"] == {"count": 2, "busy": 0, "copies": 2}
    callers = Callers()
    callers.start(lambda: ask(runtime))
    assert inside.wait(GUARD_S)
    told = readiness(runtime)[1]
    assert told["instances"] == {"count": 2, "busy": 1, "copies": 2}
    assert told.keys() <= READINESS["properties"].keys(), "the API's description knows of it"
    go.set()
    callers.finish()


def test_where_the_second_copy_cannot_be_loaded_the_first_is_freed(serve, loader):
    def fail(path: Path) -> None:
        raise ModelError("no memory for another one")

    loader.before[1] = fail
    runtime = serve("1")
    assert "no memory for another one" in str(runtime.load_error)
    assert [copy.freed for copy in loader.copies] == [1]


def test_copies_of_files_that_change_meanwhile_are_refused(serve, loader):
    loader.before[1] = lambda path: path.write_bytes(b"other weights")
    runtime = serve("1")
    assert "changed while its 2 copies were loaded" in str(runtime.load_error)
    assert [copy.freed for copy in loader.copies] == [1, 1]


def test_a_shared_model_of_files_that_change_while_they_are_read_is_refused(serve, loader):
    """A loader may open them more than once for one model."""
    loader.is_thread_safe = True
    loader.before[0] = lambda path: path.write_bytes(b"other weights")
    runtime = serve("1")
    assert "changed while its 2 copies were loaded" in str(runtime.load_error)
    assert [copy.freed for copy in loader.copies] == [1]


def test_a_swap_under_load_is_seen_by_both_threads_at_once_and_frees_both_old_copies(serve, loader, tmp_path):
    over = threading.Event()
    runtime = serve("1", max_batch_size=4, model_cache_size=1)
    callers = Callers()

    def keep_asking() -> int:
        count = 0
        while not over.is_set():
            ask(runtime, rows=3)
            count += 1
        return count

    for _ in range(8):
        callers.start(keep_asking)
    for version in ("2", "3", "4"):
        put(tmp_path, f"m/{version}", fmt=loader.fmt)
        assert runtime.load("m", version, timeout_s=GUARD_S).version == version
        assert ask(runtime) == [version]
    over.set()
    assert all(count > 0 for count in callers.finish())
    runtime.batcher().call(lambda: None)
    assert [copy.freed for copy in loader.copies] == [1] * 6 + [0] * 2


def test_a_model_is_not_freed_while_a_batch_is_in_it_whose_callers_have_left(serve, loader):
    inside, go = threading.Event(), threading.Event()

    def hold(copy: Copy) -> None:
        inside.set()
        assert go.wait(GUARD_S)

    runtime = serve("1", "2")
    loader.inside = hold
    with pytest.raises(DeadlineExceeded):
        ask(runtime, timeout_s=0.05)
    assert inside.is_set()
    callers = Callers()
    callers.start(lambda: runtime.unload("m", "2"))
    assert not go.wait(0.3), "by now a job that did not wait would have freed it"
    assert [copy.freed for copy in loader.copies] == [0, 0]
    go.set()
    assert callers.finish() == [True]
    assert [copy.freed for copy in loader.copies] == [1, 1]


def test_copies_on_one_device_are_pointed_out(serve, loader):
    loader.device = "cuda:0"
    runtime = serve("1")
    [entry] = models(runtime)
    assert "MODEL_INSTANCES=2 on cuda:0" in entry["versions"][0]["warnings"][0]


def test_what_threads_may_share_on_a_card_is_loaded_once_and_called_by_one_after_the_other(serve, loader):
    loader.device, loader.is_thread_safe = "cuda:0", True
    inside, go = threading.Event(), threading.Event()

    def hold(copy: Copy) -> None:
        inside.set()
        assert go.wait(GUARD_S)

    runtime = serve("1", max_batch_size=4)
    loader.inside = hold
    callers = Callers()
    callers.start(lambda: ask(runtime))
    assert inside.wait(GUARD_S)
    callers.start(lambda: ask(runtime, rows=3))  # taken at once by the other thread, `Copy` would have a fault to tell
    assert not go.wait(0.3)
    assert readiness(runtime)[1]["instances"] == {"count": 2, "busy": 1, "copies": 1}
    go.set()
    assert callers.finish() == [["1"], ["1"] * 3]
    assert len(loader.copies) == 1
    assert models(runtime)[0]["versions"][0]["warnings"] == []


@pytest.mark.parametrize(
    ("device", "is_thread_safe", "is_pipelined"),
    [("cpu", True, False), ("cuda:1", True, True), ("cuda:1", False, False), ("cpu", False, False)],
)
def test_batches_follow_each_other_only_where_threads_share_a_model_on_a_card(device, is_thread_safe, is_pipelined):
    handle = ModelHandle("m", "1", "f", list, device=device, is_thread_safe=is_thread_safe)
    assert handle.is_pipelined is is_pipelined


def test_every_copy_is_freed_though_one_of_them_cannot_be(loader):
    freed: list[int] = []

    def release(number: int) -> None:
        freed.append(number)
        if number == 1:
            raise RuntimeError("stuck")

    handles = [
        ModelHandle("m", "1", "f", list, release=lambda number=number: release(number))  # type: ignore[misc]
        for number in range(3)
    ]
    with pytest.raises(RuntimeError, match="stuck"):
        Copies(handles).close()
    assert sorted(freed) == [0, 1, 2]


def test_a_function_that_may_not_be_called_twice_at_a_time_is_refused():
    handle = ModelHandle.from_callable(list, name="m")
    with pytest.raises(SettingsError, match=r"MODEL_INSTANCES=2: .* is_thread_safe=True"):
        create_app(Settings(model_instances=2), model_handle=handle)
    assert create_app(Settings(model_instances=1), model_handle=handle)


@pytest.mark.parametrize("word", ["no", "", 1, 0, None, [False]])
def test_what_says_neither_yes_nor_no_of_it_is_refused_where_it_is_said(word):
    with pytest.raises(TypeError, match=r"is_thread_safe=.*: must be True or False"):
        ModelHandle.from_callable(list, name="m", is_thread_safe=word)
    with pytest.raises(TypeError, match="must be True or False"):
        ModelHandle("m", "1", "callable", list, is_thread_safe=word)


def test_a_function_that_may_be_is_shared_by_both_threads():
    both = threading.Barrier(2, timeout=GUARD_S)
    threads: set[int] = set()

    def predict(rows: list[Any]) -> list[Any]:
        threads.add(threading.get_ident())
        both.wait()
        return [float(row[0]) for row in rows]

    handle = ModelHandle.from_callable(predict, name="m", is_thread_safe=True)
    settings = Settings(model_instances=2, max_batch_size=1, max_batch_latency_ms=0, warmup=False)
    app = create_app(settings, model_handle=handle)
    try:
        answer = app.test_client().post("/predict", json={"instances": [[1.0], [2.0]]})
        assert answer.json["predictions"] == [1.0, 2.0]
        assert len(threads) == 2
    finally:
        app.extensions["jitney"].close()
