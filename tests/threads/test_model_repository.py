"""Several models and versions behind one worker thread: loaded, swapped, refused and freed while requests come."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from support.callers import Callers
from support.models import GUARD_S

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.registry import _registered, register_loader
from loaders.signature import TabularInput
from service.errors import ClientGone, DeadlineExceeded, NotReady, UnknownModel, WorkerDead
from service.health import models, readiness
from service.lane_key import LaneKey
from service.metrics.batches import BatchMetrics
from service.models import failed_loads
from service.runtime import Runtime
from service.settings import Settings


class Scripted:
    """A loader whose models answer with their own name and version, and which remembers what it did, and where.

    `broken`: names and versions that cannot be loaded. `gate`: what a load of such a version waits for.
    """

    fmt = "scripted"

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.freed: list[str] = []
        self.threads: set[str] = set()
        self.broken: set[str] = set()
        self.gates: dict[str, threading.Event] = {}
        self.most_in_memory = 0
        self.failure: type[BaseException] = RuntimeError

    def load(self, path: Path, *, name: str, version: str, metadata: Any = None) -> ModelHandle:
        what = f"{name}/{version}"
        self.threads.add(threading.current_thread().name)
        self.loads.append(what)
        if what in self.gates:
            assert self.gates[what].wait(GUARD_S)
        if what in self.broken:
            raise self.failure(f"bad weights in {path}")
        self.most_in_memory = max(self.most_in_memory, len(self.loads) - len(self.freed) - len(self.broken))
        return ModelHandle(
            name,
            version,
            "scripted",
            lambda rows: [what] * len(rows),
            input=TabularInput(width=1),
            release=lambda: self._free(what),
        )

    def _free(self, what: str) -> None:
        self.threads.add(threading.current_thread().name)
        self.freed.append(what)


@pytest.fixture
def loader() -> Iterator[Scripted]:
    loader = Scripted()
    register_loader("scripted", loader)
    yield loader
    _registered.pop("scripted", None)


def put(root: Path, *versions: str) -> None:
    for version in versions:
        directory = root / version
        directory.mkdir(parents=True)
        (directory / "weights.bin").touch()
        (directory / "jitney.toml").write_text('[model]\nformat = "scripted"\nfile = "weights.bin"\n')


@pytest.fixture
def serve(tmp_path: Path, loader: Scripted) -> Iterator[Callable[..., Runtime]]:
    """A started runtime over a repository of these versions; `loader` belongs to it."""
    made: list[Runtime] = []

    def make(*versions: str, **settings: Any) -> Runtime:
        put(tmp_path, *versions)
        values = {"max_batch_latency_ms": 0, "model_repository": str(tmp_path), "request_timeout_ms": 5000, **settings}
        made.append(Runtime(Settings(**values), BatchMetrics(CollectorRegistry())))
        made[-1].start()
        assert made[-1].batcher().wait_started(GUARD_S)
        return made[-1]

    yield make
    for runtime in made:
        assert runtime.close(GUARD_S)


def ask(runtime: Runtime, name: str | None = None, version: str | None = None) -> str:
    with runtime.lease(name, version) as model:
        [answer] = runtime.batcher().submit([0], GUARD_S, key=LaneKey(model, (), ()))
        assert answer == f"{model.name}/{model.version}"
        return str(answer)


def settled(runtime: Runtime) -> None:
    """Wait for what was posted to the worker."""
    runtime.batcher().call(lambda: None)


def test_of_each_model_the_newest_version_is_loaded_at_the_start(serve, loader):
    runtime = serve("a/1", "a/9", "a/10", "b/1")
    assert sorted(loader.loads) == ["a/10", "b/1"]
    assert (ask(runtime, "a"), ask(runtime, "b")) == ("a/10", "b/1")
    assert loader.threads == {"jitney-worker"}


def test_no_more_than_the_cache_holds_is_loaded_at_the_start(serve, loader):
    runtime = serve("a/1", "b/1", "c/1", model_cache_size=2, model_name="c")
    assert loader.loads == ["c/1", "a/1"]
    assert ask(runtime) == "c/1"
    assert ask(runtime, "b") == "b/1"


def test_a_single_name_need_not_be_named(serve):
    runtime = serve("a/1", "a/2")
    assert ask(runtime) == "a/2"
    assert ask(runtime, None, "1") == "a/1"
    assert ask(runtime) == "a/2", "a version that one request asked for does not become everybody's"


def test_among_several_a_name_is_needed(serve):
    runtime = serve("a/1", "b/1")
    with pytest.raises(UnknownModel, match="several models are served here"):
        runtime.lease()


def test_the_settings_choose_the_default_model_and_version(serve):
    assert ask(serve("a/1", "a/2", "b/1", model_name="a", model_version="1")) == "a/1"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"model_name": "c"}, "MODEL_NAME='c' is not in MODEL_REPOSITORY, which has a, b"),
        ({"model_version": "1"}, "MODEL_VERSION says nothing without MODEL_NAME"),
        ({"model_name": "a", "model_version": "7"}, "MODEL_VERSION='7' of a is not in MODEL_REPOSITORY, which has 1"),
    ],
)
def test_settings_that_name_what_is_not_there_stop_the_start(serve, settings, message):
    runtime = serve("a/1", "b/1", **settings)
    assert message in str(runtime.load_error)
    assert not readiness(runtime)[0]


@pytest.mark.parametrize("name, version", [("c", None), ("a", "7"), ("c", "1"), ("..", None), ("a", "..")])
def test_what_is_not_there_is_unknown(serve, name, version):
    runtime = serve("a/1")
    with pytest.raises(UnknownModel):
        runtime.lease(name, version)


def test_a_version_that_is_added_later_is_served_when_it_is_asked_for(serve, tmp_path):
    runtime = serve("a/1")
    put(tmp_path, "a/2", "b/1")
    assert ask(runtime, "a", "2") == "a/2"
    assert ask(runtime, "b") == "b/1"
    assert ask(runtime) == "a/1", "until it is loaded for everybody, or the service starts anew"


def test_a_load_swaps_the_default_version(serve, tmp_path, loader):
    runtime = serve("a/1")
    put(tmp_path, "a/2")
    assert runtime.load("a").version == "2"
    assert (ask(runtime), ask(runtime, "a", "1")) == ("a/2", "a/1")
    assert runtime.load("a", "1").version == "1"
    assert ask(runtime) == "a/1"
    assert loader.loads == ["a/1", "a/2", "a/1"]


def test_the_same_version_is_read_again(serve, loader):
    runtime = serve("a/1")
    runtime.load("a", "1")
    settled(runtime)
    assert (ask(runtime), loader.loads, loader.freed) == ("a/1", ["a/1", "a/1"], ["a/1"])


def test_a_broken_new_version_changes_nothing(serve, tmp_path, loader, caplog):
    runtime = serve("a/1")
    put(tmp_path, "a/2")
    loader.broken.add("a/2")
    with pytest.raises(ModelError, match="bad weights"):
        runtime.load()
    assert ask(runtime) == "a/1"
    assert "version 2 of model a could not be loaded" in caplog.text
    assert readiness(runtime)[0]
    [entry] = models(runtime)
    assert [version["state"] for version in entry["versions"]] == ["loaded", "failed"]
    assert "bad weights in" in entry["versions"][1]["reason"]
    assert str(tmp_path) not in entry["versions"][1]["reason"]
    loader.broken.clear()
    assert runtime.load().version == "2"
    assert [version["state"] for version in models(runtime)[0]["versions"]] == ["loaded", "loaded"]


def test_requests_do_not_load_a_broken_version_again_and_again(serve, loader, monkeypatch):
    runtime = serve("a/1", "a/2")
    loader.broken.add("a/1")
    for _ in range(3):
        with pytest.raises(NotReady, match="could not be loaded"):
            runtime.lease("a", "1")
    assert loader.loads == ["a/2", "a/1"]
    monkeypatch.setattr(failed_loads, "RETRY_AFTER_S", 0.0)
    loader.broken.clear()
    assert ask(runtime, "a", "1") == "a/1"


def test_one_load_serves_all_who_ask_for_the_version(serve, loader):
    runtime = serve("a/1", "a/2")
    gate = loader.gates["a/1"] = threading.Event()
    callers = Callers()
    for _ in range(8):
        callers.start(lambda: ask(runtime, "a", "1"))
    deadline = time.monotonic() + GUARD_S
    while len(runtime.batcher()._admission.jobs) < 8 and time.monotonic() < deadline:
        time.sleep(0.005)
    gate.set()
    assert callers.finish() == ["a/1"] * 8
    assert loader.loads == ["a/2", "a/1"]


def test_a_request_waits_for_a_load_no_longer_than_its_deadline(serve, loader):
    runtime = serve("a/1", "a/2", request_timeout_ms=100)
    gate = loader.gates["a/1"] = threading.Event()
    with pytest.raises(DeadlineExceeded):
        runtime.lease("a", "1")
    gate.set()
    assert runtime.batcher().call(lambda: "free again", GUARD_S) == "free again"
    assert ask(runtime, "a", "1") == "a/1"


def test_a_model_is_freed_on_the_worker_thread_when_its_last_request_is_done(serve, loader):
    runtime = serve("a/1", "b/1")
    with runtime.lease("a") as model:
        assert runtime.unload("a")
        settled(runtime)
        assert loader.freed == []
        assert runtime.batcher().submit([0], GUARD_S, key=LaneKey(model, (), ())) == ["a/1"]
    settled(runtime)
    assert loader.freed == ["a/1"]
    assert loader.threads == {"jitney-worker"}


def test_what_is_unloaded_stays_so_until_it_is_loaded(serve):
    runtime = serve("a/1", "a/2", "b/1")
    assert runtime.unload("a", "2")
    assert ask(runtime, "a") == "a/1", "what is left of it answers"
    with pytest.raises(UnknownModel):
        runtime.lease("a", "2")
    assert runtime.unload("a")
    with pytest.raises(UnknownModel):
        runtime.lease("a")
    assert not runtime.unload("a")
    assert not runtime.unload("z")
    assert [version["state"] for version in models(runtime, "a")[0]["versions"]] == ["unloaded", "unloaded"]
    assert runtime.load("a").version == "2"
    assert ask(runtime, "a") == "a/2"


def test_there_are_never_more_models_in_memory_than_one_above_the_cache(serve, loader):
    names = [f"{name}/1" for name in "abcdef"]
    runtime = serve(*names, model_cache_size=2)
    callers = Callers()
    for turn in range(30):
        callers.start(lambda name=names[turn % 6]: ask(runtime, name[0]))
    assert callers.finish() == [names[turn % 6] for turn in range(30)]
    settled(runtime)
    assert loader.most_in_memory <= 3
    assert len(loader.loads) - len(loader.freed) == 2


def test_when_all_that_is_loaded_stays_in_use_a_request_for_another_gives_up_in_time(serve):
    runtime = serve("a/1", "b/1", "c/1", model_cache_size=1, request_timeout_ms=1500)
    with runtime.lease("a"), runtime.lease("b"), pytest.raises(DeadlineExceeded, match="MODEL_CACHE_SIZE"):
        runtime.lease("c")
    assert ask(runtime, "c") == "c/1"


def test_a_start_with_a_broken_model_is_a_failed_load(serve, loader):
    loader.broken.add("b/1")
    runtime = serve("a/1", "b/1")
    assert "bad weights" in str(runtime.load_error)


def test_models_beside_a_broken_one_are_served_where_that_is_allowed(serve, loader):
    loader.broken.add("a/1")
    runtime = serve("a/1", "b/1", exit_on_load_error=False)
    assert runtime.load_error is None
    assert ask(runtime, "b") == "b/1"
    with pytest.raises(NotReady):
        runtime.lease("a")


def test_a_start_at_which_nothing_can_be_loaded_fails_always(serve, loader):
    loader.broken |= {"a/1", "b/1"}
    assert "bad weights" in str(serve("a/1", "b/1", exit_on_load_error=False).load_error)


def test_everything_is_freed_at_the_end(serve, loader):
    runtime = serve("a/1", "b/1")
    lease = runtime.lease("a")
    assert runtime.close(GUARD_S)
    assert sorted(loader.freed) == ["a/1", "b/1"]
    lease.__exit__(None, None, None)


def test_gauges_speak_of_their_own_model_and_leave_with_it(serve):
    runtime = serve("a/1", "b/1")
    registry = runtime.metrics.registry
    release = threading.Event()
    callers = Callers()
    runtime.batcher().post(lambda: release.wait(GUARD_S))
    callers.start(lambda: ask(runtime, "a"))
    deadline = time.monotonic() + GUARD_S
    while runtime.batcher().status().queued < 1 and time.monotonic() < deadline:
        time.sleep(0.005)

    def depth(name: str) -> float | None:
        return registry.get_sample_value("inference_queue_depth", {"model": name, "version": "1"})

    assert (depth("a"), depth("b")) == (1.0, 0.0)
    release.set()
    callers.finish()
    runtime.unload("b")
    assert (depth("a"), depth("b")) == (0.0, None)
    info = {"name": "b", "version": "1", "format": "scripted", "device": "cpu"}
    assert registry.get_sample_value("inference_model_info", info) is None


def test_a_load_that_takes_too_long_makes_the_service_not_ready_and_no_more(serve, loader, tmp_path):
    runtime = serve("a/1", stall_limit_ms=20)
    put(tmp_path, "a/2")
    gate = loader.gates["a/2"] = threading.Event()
    callers = Callers()
    callers.start(runtime.load)
    deadline = time.monotonic() + GUARD_S
    while readiness(runtime)[0] and time.monotonic() < deadline:
        time.sleep(0.005)
    [reason] = readiness(runtime)[1]["reasons"]
    assert reason.startswith("the inference worker has been loading or freeing a model for")
    gate.set()
    callers.finish()
    assert readiness(runtime)[0]


def test_a_bundle_at_model_path_can_be_replaced_in_place(tmp_path, loader, serve):
    put(tmp_path / "one", "m/1")
    bundle = tmp_path / "one" / "m" / "1"
    runtime = Runtime(
        Settings(model_path=str(bundle), model_name="m", max_batch_latency_ms=0), BatchMetrics(CollectorRegistry())
    )
    runtime.start()
    assert runtime.batcher().wait_started(GUARD_S)
    assert ask(runtime) == "m/1"
    toml = bundle / "jitney.toml"
    toml.write_text(toml.read_text().replace("[model]", '[model]\nversion = "2"'))
    assert runtime.load().version == "2"
    settled(runtime)
    assert (ask(runtime), loader.freed) == ("m/2", ["m/1"])
    with pytest.raises(UnknownModel):
        runtime.lease("m", "1")
    loader.broken.add("m/2")
    with pytest.raises(ModelError):
        runtime.load()
    assert ask(runtime) == "m/2"
    assert runtime.close(GUARD_S)


def test_swaps_under_load_fail_no_request_and_each_answer_is_of_the_version_it_names(serve, loader, tmp_path):
    runtime = serve("a/1", "a/2", model_cache_size=1)
    over = threading.Event()
    callers = Callers()
    counts: list[int] = []

    def client() -> None:
        asked = 0
        while not over.is_set():
            ask(runtime)
            asked += 1
        counts.append(asked)

    for _ in range(32):
        callers.start(client)
    put(tmp_path, "a/3")
    loader.broken.add("a/3")
    for _ in range(20):
        runtime.load("a", "1")
        runtime.load("a", "2")
        with pytest.raises(ModelError):
            runtime.load("a", "3")
    over.set()
    assert callers.finish() == [None] * 32
    assert min(counts) > 0
    settled(runtime)
    assert len(loader.loads) - 20 - len(loader.freed) == 1


def test_a_model_is_loaded_on_demand_even_when_nothing_else_is(serve):
    runtime = serve("a/1", "b/1", model_name="a", model_cache_size=1)
    assert runtime.unload("a")
    assert ask(runtime, "b") == "b/1"
    assert readiness(runtime)[1]["reasons"] == ["the default model cannot answer: no model of this name is served here"]
    runtime.load("a")
    assert readiness(runtime)[0]


def test_nothing_left_to_answer_is_not_ready(serve):
    runtime = serve("a/1", "b/1")
    runtime.unload("a")
    assert readiness(runtime)[0]
    runtime.unload("b")
    assert readiness(runtime)[1]["reasons"] == ["no model is left to answer"]


def test_a_default_that_could_not_be_loaded_is_not_ready(serve, loader):
    loader.broken.add("a/1")
    runtime = serve("a/1", "b/1", model_name="a", exit_on_load_error=False)
    [reason] = readiness(runtime)[1]["reasons"]
    assert "the default model cannot answer: this version of the model could not be loaded" in reason
    assert ask(runtime, "b") == "b/1"


def test_an_older_version_stands_in_for_a_broken_one_where_that_is_allowed(serve, loader):
    loader.broken |= {"a/3", "a/2"}
    runtime = serve("a/1", "a/2", "a/3", exit_on_load_error=False)
    assert (ask(runtime), loader.loads) == ("a/1", ["a/3", "a/2", "a/1"])


def test_a_failing_load_is_tried_once_for_all_who_wait_for_it(serve, loader):
    runtime = serve("a/1", "b/1", model_name="a", model_cache_size=1)
    loader.broken.add("b/1")
    gate = loader.gates["b/1"] = threading.Event()
    callers = Callers()
    for _ in range(8):
        callers.start(lambda: ask(runtime, "b"))
    deadline = time.monotonic() + GUARD_S
    while len(runtime.batcher()._admission.jobs) < 8 and time.monotonic() < deadline:
        time.sleep(0.005)
    gate.set()
    assert all(isinstance(outcome, NotReady) for outcome in callers.finish())
    assert loader.loads == ["a/1", "b/1"]


def test_a_version_that_was_repaired_is_loaded_at_once(serve, loader, tmp_path):
    runtime = serve("a/1", "b/1", model_name="a", model_cache_size=1)
    loader.broken.add("b/1")
    for _ in range(2):
        with pytest.raises(NotReady) as refused:
            runtime.lease("b")
        assert 0 < (refused.value.retry_after_s or 0) <= failed_loads.RETRY_AFTER_S
    loader.broken.clear()
    (tmp_path / "b" / "1" / "weights.bin").write_bytes(b"better")
    assert ask(runtime, "b") == "b/1"


@pytest.mark.parametrize("failure", [SystemExit, KeyboardInterrupt, MemoryError])
def test_whatever_a_load_raises_costs_no_other_model_anything(serve, loader, failure):
    runtime = serve("a/1", "b/1", model_name="a", model_cache_size=1)
    loader.broken.add("b/1")
    loader.failure = failure
    with pytest.raises(NotReady):
        runtime.lease("b")
    with pytest.raises(ModelError, match="bad weights"):
        runtime.load("b")
    assert ask(runtime) == "a/1"


def test_what_the_operator_did_last_is_not_undone_by_a_request_that_waited(serve, loader):
    runtime = serve("a/1", "a/2", "b/1", model_name="a", model_cache_size=1)
    assert ask(runtime, "b") == "b/1"  # the default version has been pushed out
    release = threading.Event()
    runtime.batcher().post(lambda: release.wait(GUARD_S))
    callers = Callers()
    callers.start(lambda: runtime.load("a", "1").version)
    wait_for_jobs(runtime, 2)
    callers.start(lambda: ask(runtime))
    wait_for_jobs(runtime, 3)
    release.set()
    assert callers.finish() == ["1", "a/1"]
    assert ask(runtime) == "a/1"


def test_a_request_that_waited_does_not_bring_an_unloaded_model_back(serve):
    runtime = serve("a/1", "b/1", model_name="a", model_cache_size=1)
    release = threading.Event()
    runtime.batcher().post(lambda: release.wait(GUARD_S))
    callers = Callers()
    callers.start(lambda: runtime.unload("b"))
    wait_for_jobs(runtime, 2)
    callers.start(lambda: ask(runtime, "b"))
    wait_for_jobs(runtime, 3)
    release.set()
    unloaded, refused = callers.finish()
    assert unloaded is True
    assert isinstance(refused, UnknownModel)


def wait_for_jobs(runtime: Runtime, count: int) -> None:
    deadline = time.monotonic() + GUARD_S
    while len(runtime.batcher()._admission.jobs) < count and time.monotonic() < deadline:
        time.sleep(0.002)


def test_nothing_is_loaded_for_who_has_given_up(serve, loader):
    runtime = serve("a/1", "b/1", "c/1", model_name="a", model_cache_size=1)
    release = threading.Event()
    runtime.batcher().post(lambda: release.wait(GUARD_S))
    with pytest.raises(DeadlineExceeded):
        runtime.lease("b", deadline=time.monotonic() + 0.05)
    with pytest.raises(ClientGone):
        runtime.lease("c", is_gone=lambda: True)
    release.set()
    settled(runtime)
    assert loader.loads == ["a/1"]


def test_a_load_for_everybody_waits_for_room_too(serve, loader):
    runtime = serve("a/1", model_cache_size=1)
    leases = [runtime.lease("a")]
    runtime.load("a")
    leases.append(runtime.lease("a"))
    with pytest.raises(DeadlineExceeded, match="MODEL_CACHE_SIZE"):
        runtime.load("a", timeout_s=0.1)
    assert len(loader.loads) == 2
    for lease in leases:
        lease.__exit__(None, None, None)
    assert runtime.load("a").version == "1"


def test_who_waits_for_room_is_told_when_the_worker_dies(serve):
    def die() -> None:
        raise SystemExit

    runtime = serve("a/1", "b/1", "c/1", model_name="a", model_cache_size=1)
    with runtime.lease("a"), runtime.lease("b"):
        callers = Callers()
        began = time.monotonic()
        callers.start(lambda: ask(runtime, "c"))
        runtime.batcher().post(die)
        [outcome] = callers.finish()
    assert isinstance(outcome, WorkerDead)
    assert time.monotonic() - began < GUARD_S


def test_a_version_that_is_gone_from_disk_gives_way_for_good(serve, tmp_path):
    runtime = serve("a/1", "a/2", "b/1", model_name="a", model_cache_size=1)
    assert ask(runtime) == "a/2"
    assert ask(runtime, "b") == "b/1"
    shutil.rmtree(tmp_path / "a" / "2")
    assert ask(runtime) == "a/1"
    assert runtime.lease_now(None, None) is not None


def test_the_info_series_follows_a_change_of_format(serve, loader, tmp_path):
    runtime = serve("a/1")
    other = Scripted()
    other.fmt = "other"
    register_loader("other", other)
    try:
        toml = tmp_path / "a" / "1" / "jitney.toml"
        toml.write_text(toml.read_text().replace("scripted", "other"))
        original = other.load
        other.load = lambda *args, **more: replace(original(*args, **more), fmt="other")  # type: ignore[method-assign]
        runtime.load("a")
    finally:
        _registered.pop("other")
    info = [
        sample.labels["format"]
        for family in runtime.metrics.registry.collect()
        if family.name == "inference_model_info"
        for sample in family.samples
    ]
    assert info == ["other"]


def test_the_first_reason_is_told_when_closing_fails_as_well(serve, loader, tmp_path, monkeypatch):
    runtime = serve("a/1")
    put(tmp_path, "a/2")

    def fails_twice(path: Path, *, name: str, version: str, metadata: Any = None) -> ModelHandle:
        def refuse(rows: list[Any]) -> Any:
            raise ValueError("the real reason")

        def release() -> None:
            raise RuntimeError("release broke")

        return ModelHandle(name, version, "scripted", refuse, input=TabularInput(width=1), release=release)

    monkeypatch.setattr(loader, "load", fails_twice)
    with pytest.raises(ModelError, match="the real reason"):
        runtime.load("a", "2")


@pytest.mark.parametrize("name, version", [("other", None), (None, "9"), ("m", "9")])
def test_what_a_single_model_is_not_called_cannot_be_loaded(tmp_path, loader, name, version):
    runtime = Runtime(
        Settings(max_batch_latency_ms=0), BatchMetrics(CollectorRegistry()), ModelHandle.from_callable(list, name="m")
    )
    runtime.start()
    assert runtime.batcher().wait_started(GUARD_S)
    with pytest.raises(UnknownModel):
        runtime.load(name, version)
    assert runtime.load("m", "1").name == "m"
    assert runtime.unload("m")
    assert not runtime.unload("m")
    assert not readiness(runtime)[0]
    with pytest.raises(UnknownModel):
        runtime.lease()
    assert runtime.load("m").name == "m"
    assert readiness(runtime)[0]
    assert runtime.close(GUARD_S)


def test_a_version_that_never_was_leaves_no_trace(serve):
    runtime = serve("a/1")
    for number in range(5):
        with pytest.raises(UnknownModel):
            runtime.load("a", f"nothing{number}")
        with pytest.raises(UnknownModel):
            runtime.load(f"nothing{number}", "1")
    assert not runtime._keeper._failed


def test_directories_that_hold_no_bundle_are_named_at_the_start(serve, tmp_path, caplog):
    (tmp_path / "bad name" / "1").mkdir(parents=True)
    serve("a/1")
    assert "'bad name/1' is passed over" in caplog.text
