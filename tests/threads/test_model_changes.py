"""Models are loaded, swapped, refused and freed while requests come."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from support.callers import Callers
from support.models import GUARD_S
from support.repositories import ask, put, settled, started

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.signature import TabularInput
from service.errors import ClientGone, DeadlineExceeded, NotReady, UnknownModel, WorkerDead
from service.health import models, readiness
from service.lane_key import LaneKey
from service.metrics.batches import BatchMetrics
from service.models import failed_loads
from service.runtime import Runtime
from service.settings import Settings


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
    wait_for_jobs(runtime, 8)
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


def test_everything_is_freed_at_the_end(serve, loader):
    runtime = serve("a/1", "b/1")
    lease = runtime.lease("a")
    assert runtime.close(GUARD_S)
    assert sorted(loader.freed) == ["a/1", "b/1"]
    lease.__exit__(None, None, None)


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
    settings = Settings(model_path=str(bundle), model_name="m", max_batch_latency_ms=0)
    runtime = started(Runtime(settings, BatchMetrics(CollectorRegistry())))
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


def test_a_failing_load_is_tried_once_for_all_who_wait_for_it(serve, loader):
    runtime = serve("a/1", "b/1", model_name="a", model_cache_size=1)
    loader.broken.add("b/1")
    gate = loader.gates["b/1"] = threading.Event()
    callers = Callers()
    for _ in range(8):
        callers.start(lambda: ask(runtime, "b"))
    wait_for_jobs(runtime, 8)
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
    handle = ModelHandle.from_callable(list, name="m")
    runtime = started(Runtime(Settings(max_batch_latency_ms=0), BatchMetrics(CollectorRegistry()), handle))
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


def wait_for_jobs(runtime: Runtime, count: int) -> None:
    deadline = time.monotonic() + GUARD_S
    while len(runtime.batcher()._admission.jobs) < count and time.monotonic() < deadline:
        time.sleep(0.002)
