"""A batcher belongs to the process that made it; a child neither hangs nor harms it."""

from __future__ import annotations

import gc
import os
import re
import select
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from support.callers import Callers
from support.models import GUARD_S
from support.parking import Parking, ParkingClock

from loaders.handle import ModelHandle
from loaders.registry import _registered, register_loader
from service import create_app
from service.batching.batcher import ThreadedBatcher
from service.errors import NotReady
from service.health import liveness, readiness
from service.http.state import RequestState
from service.lane_key import LaneKey
from service.metrics.batches import BatchMetrics
from service.runtime import Runtime
from service.runtimes import process_lock, runtimes
from service.settings import Settings

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def said_by_child(body: Callable[[], str]) -> str:
    """What `body` returns in a forked child."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what is tested
        pid = os.fork()
    if pid == 0:
        try:
            said = body()
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], GUARD_S)
        if not ready:
            os.kill(pid, 9)
        said = os.read(reading, 65536).decode() if ready else "the child hangs"
    finally:
        os.close(reading)
        os.waitpid(pid, 0)
    return said


def tried(action: Callable[[], object]) -> str:
    try:
        return repr(action())
    except NotReady as error:
        return str(error)


def test_requests_of_two_children_have_different_ids() -> None:
    ids = [said_by_child(lambda: RequestState().request_id({})) for _ in range(2)]
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in ids)
    assert ids[0] != ids[1]


def test_a_child_is_told_and_does_not_hang_although_the_lock_was_held_when_it_was_made() -> None:
    parking = Parking()
    batcher = ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0, clock=ParkingClock("caller-0", 2, parking))
    batcher.start()
    arrival = batcher.announce()
    callers = Callers()
    callers.start(lambda: batcher.submit(["inside"]))
    assert parking.parked.wait(GUARD_S)  # it holds the admission's lock now

    def child() -> str:
        arrival.release()
        attempts = [lambda: batcher.submit([1]), batcher.announce, batcher.start, batcher.close]
        return "|".join(tried(attempt) for attempt in attempts)

    refusal = "this batcher was made before a fork; make and start one in the child process"
    assert said_by_child(child).split("|") == [refusal, refusal, refusal, "True"]
    parking.go.set()
    assert callers.finish() == [["inside"]]
    assert batcher.submit(["parent"]) == ["parent"]
    assert batcher.close()


def test_a_child_can_make_a_batcher_of_its_own() -> None:
    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0) as parents:
        assert parents.submit([1]) == [1]

        def child() -> str:
            with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0) as own:
                return repr(own.submit(["child"]))

        assert said_by_child(child) == "['child']"
        assert parents.submit([2]) == [2]


class Weights:
    """A model that would touch its device when it is destroyed."""

    def __init__(self, gone: list[int]) -> None:
        self._gone = gone

    def __call__(self, rows: list[object]) -> list[object]:
        return rows

    def __del__(self) -> None:
        self._gone.append(os.getpid())


class CountedLoader:
    """Loads a model that says when it is freed, and where it is destroyed."""

    fmt = "counted"

    def __init__(self) -> None:
        self.loads = 0
        self.freed = 0
        self.gone: list[int] = []

    def load(self, path: Path, *, name: str, version: str, metadata: Mapping[str, object] | None = None) -> ModelHandle:
        self.loads += 1
        return ModelHandle(name, version, "counted", Weights(self.gone), path=path, release=self._count)

    def _count(self) -> None:
        self.freed += 1


@pytest.fixture
def loader() -> Iterator[CountedLoader]:
    loader = CountedLoader()
    register_loader("counted", loader)
    yield loader
    _registered.pop("counted", None)


@pytest.fixture
def runtime(loader: CountedLoader, tmp_path: Path) -> Runtime:
    """A runtime whose model comes from somewhere else than this process's memory."""
    path = tmp_path / "m.counted"
    path.touch()
    settings = Settings(model_path=str(path), model_format="counted", max_batch_latency_ms=0, warmup=False)
    return Runtime(settings, BatchMetrics(CollectorRegistry()))


def ask(runtime: Runtime) -> list[object]:
    assert runtime.batcher().wait_started(GUARD_S)
    return runtime.batcher().submit(["row"], GUARD_S, key=LaneKey(runtime.model, (), ()))


@pytest.mark.parametrize("way", ["start", "ensure_started"])
def test_a_runtime_starts_anew_in_a_child_and_loads_its_model_again(
    runtime: Runtime, loader: CountedLoader, way: str
) -> None:
    runtime.start()
    assert ask(runtime) == ["row"]

    def child() -> str:
        said = [runtime.status() is None, liveness(runtime)[0], readiness(runtime)[1]["reasons"]]
        said += [
            tried(runtime.batcher),
            tried(lambda: runtime.check(None, None, was_accepted=True)),
            runtime in runtimes(),
        ]
        getattr(runtime, way)()
        said += [ask(runtime), loader.loads, readiness(runtime)[1]["reasons"]]
        gc.collect()
        said.append(list(loader.gone))
        return repr([*said, runtime.close(GUARD_S), loader.freed])

    with runtime._lock, process_lock():  # as other threads may hold them at that moment
        said = said_by_child(child)
    told = [True, True, ["not started"], "the service has not been started", "the model is still loading", True]
    assert said == repr([*told, ["row"], 2, [], [], True, 1])
    assert ask(runtime) == ["row"]
    assert runtime.close(GUARD_S)
    assert (loader.loads, loader.freed) == (1, 1)


def test_a_child_that_only_closes_what_its_parent_started_frees_nothing(
    runtime: Runtime, loader: CountedLoader
) -> None:
    runtime.start()
    assert ask(runtime) == ["row"]
    with runtime._lock:
        assert said_by_child(lambda: repr([runtime.close(), loader.freed])) == "[True, 0]"
    assert runtime.close(GUARD_S)


def test_an_app_that_served_before_a_fork_serves_in_the_child_too() -> None:
    handle = ModelHandle.from_callable(lambda rows: [float(row.sum()) for row in rows], name="sum")
    app = create_app(Settings(max_batch_latency_ms=0), model_handle=handle)

    def predict() -> str:
        answer = app.test_client().post("/predict", json={"instances": [[1, 2]]})
        return f"{answer.status_code} {(answer.json or {}).get('predictions')}"

    assert predict() == "200 [3.0]"
    assert said_by_child(predict) == "200 [3.0]"
    assert app.extensions["jitney"].close(GUARD_S)
