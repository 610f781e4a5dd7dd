"""Metrics of a process that counts into files, for others to read."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, values
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from loaders.handle import ModelHandle
from service import Settings, create_app
from service.batching.admission import WorkerState
from service.batching.status import BatcherStatus
from service.metrics import families, present
from service.metrics.batches import BatchMetrics
from service.metrics.page import page

GUARD_S = 5.0
GAUGES = [kind.name for kind in present.KINDS]


@dataclass(frozen=True)
class Model:
    name: str = "m"
    version: str = "1"
    fmt: str = "onnx"
    device: str = "cpu"


class Queue:
    """A batcher's state, as a test sets it."""

    def __init__(self, queued: int = 0, ceiling: int = 32) -> None:
        self.queued = queued
        self.ceiling = ceiling

    def status(self) -> BatcherStatus:
        return BatcherStatus(
            state=WorkerState.RUNNING,
            alive=True,
            queued=self.queued,
            backlog_s=self.queued / 10,
            oldest_wait_s=self.queued / 100,
            busy_s=0.0,
            job_s=0.0,
            last_batch_age_s=None,
            effective_max_batch_size=self.ceiling,
            cause=None,
        )


@pytest.fixture
def shared(tmp_path, monkeypatch) -> Iterator[Path]:
    """What the client library would do had the variable been set when it was imported."""
    caches = (families._of_this_process, present._sampled)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(values, "ValueClass", values.MultiProcessValue())
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def app(shared) -> Iterator[Callable[[], BatchMetrics]]:
    """Makes the metrics of one app after another."""
    made: list[BatchMetrics] = []

    def make() -> BatchMetrics:
        made.append(BatchMetrics(CollectorRegistry()))
        return made[-1]

    yield make
    for each in made:
        each.ended()  # else its thread would go on


@pytest.fixture
def metrics(app) -> BatchMetrics:
    return app()


def shown(name: str = "") -> dict[tuple[str, str], float]:
    """Values by name and model; all, or those of one name."""
    text, _ = page(CollectorRegistry(), None, [name] if name else [])
    return {
        (sample.name, sample.labels.get("model", sample.labels.get("name", ""))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_two_apps_in_one_process_count_in_one_place(metrics, app):
    second = app()
    for each in (metrics, second, metrics, second):
        each.rejected(Model(), "deadline")
    assert shown("inference_rejected_total") == {("inference_rejected_total", "m"): 4}


def test_gauges_are_true_when_they_have_been_refreshed(metrics):
    queue = Queue()
    metrics.loaded(Model(), queue.status)
    assert [shown()[name, "m"] for name in GAUGES] == [0, 0, 0, 32, 1, 0]
    queue.queued, queue.ceiling = 20, 8
    metrics.refresh()
    assert [shown()[name, "m"] for name in GAUGES] == [20, 0.2, 2, 8, 1, 0]
    assert shown()["inference_model_info", "m"] == 1


def test_the_states_of_two_apps_become_one(metrics, app):
    second = app()
    metrics.loaded(Model(), Queue(queued=20, ceiling=8).status)
    second.loaded(Model(), Queue(queued=10, ceiling=4).status)
    assert [shown()[name, "m"] for name in GAUGES] == [30, 0.2, 2, 4, 2, 0]
    second.unloaded(Model())
    metrics.refresh()
    assert [shown()[name, "m"] for name in GAUGES] == [20, 0.2, 2, 8, 1, 0]
    assert shown()["inference_model_info", "m"] == 1


def test_a_model_that_has_left_shows_no_state_and_keeps_its_counts(metrics):
    metrics.loaded(Model("stays"), Queue(queued=1).status)
    metrics.loaded(Model("leaves"), Queue(queued=1).status)
    metrics.failed_rows(Model("leaves"), "model", 3)
    metrics.unloaded(Model("leaves"))
    metrics.refresh()
    about = {name for name, model in shown() if model == "leaves"}
    assert about.isdisjoint([*GAUGES, "inference_model_info"])
    assert "inference_errors_total" in about
    assert {name for name, model in shown() if model == "stays"} >= {*GAUGES, "inference_model_info"}
    metrics.loaded(Model("leaves"), Queue(queued=5).status)
    assert shown()["inference_queue_depth", "leaves"] == 5


def test_a_model_that_is_loaded_anew_goes_on(metrics):
    metrics.loaded(Model(), Queue(queued=1).status)
    metrics.loaded(Model(), Queue(queued=2).status)
    metrics.unloaded(Model(), replaced_by=Model())
    metrics.refresh()
    assert shown()["inference_queue_depth", "m"] == 2


def test_of_a_model_that_is_loaded_anew_in_another_format_the_new_one_is_told(metrics):
    metrics.loaded(Model(), Queue().status)
    metrics.loaded(Model(fmt="pt2"), Queue(queued=2).status)
    metrics.unloaded(Model(), replaced_by=Model(fmt="pt2"))
    text, _ = page(CollectorRegistry(), None, ["inference_model_info"])
    told = [sample.labels["format"] for f in text_string_to_metric_families(text.decode()) for sample in f.samples]
    assert told == ["pt2"]
    assert shown()["inference_queue_depth", "m"] == 2


def test_what_has_left_changes_nothing_about_other_processes(metrics, app, shared):
    metrics.loaded(Model(), Queue(ceiling=8).status)
    metrics.unloaded(Model())
    for file in list(shared.glob("*.db")):
        file.rename(shared / file.name.replace(str(os.getpid()), "1"))
    values.ValueClass.close_all_files()
    families._of_this_process.cache_clear()
    present._sampled.cache_clear()
    other = app()
    other.loaded(Model(), Queue(queued=3, ceiling=16).status)
    assert [shown()[name, "m"] for name in GAUGES] == [3, 0.03, 0.3, 16, 1, 0]


def test_when_an_app_has_ended_its_models_have_left(metrics):
    metrics.loaded(Model("a"), Queue().status)
    metrics.loaded(Model("b"), Queue().status)
    metrics.ended()
    assert not any(name in GAUGES for name, _ in shown())


def test_what_is_written_late_does_not_bring_a_model_back_that_has_left(metrics, shared):
    queue, parked, release = Queue(queued=7), threading.Event(), threading.Event()
    metrics.loaded(Model(), queue.status)

    def slow() -> BatcherStatus:
        parked.set()
        assert release.wait(GUARD_S)
        return queue.status()

    release.set()
    metrics.loaded(Model(), slow)
    release.clear()
    parked.clear()
    writer = threading.Thread(target=metrics.refresh)
    writer.start()
    assert parked.wait(GUARD_S)
    leaver = threading.Thread(target=metrics.unloaded, args=(Model(),))
    leaver.start()
    leaver.join(0.2)  # it waits for the writer; without the lock it would be done
    release.set()
    writer.join(GUARD_S)
    leaver.join(GUARD_S)
    written = {metric.name: metric.samples[0].value for metric in MultiProcessCollector(None, str(shared)).collect()}
    assert [written[name] for name in GAUGES] == [0, 0, 0, float("inf"), 0, 0]


@pytest.mark.usefixtures("shared")
def test_a_runtime_that_is_closed_has_no_state():
    model = ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="given")
    runtime = create_app(Settings(), model_handle=model).extensions["jitney"]
    runtime.start()
    assert runtime.batcher().wait_started(GUARD_S)
    assert shown()["inference_effective_max_batch_size", "given"] == runtime.settings.max_batch_size
    assert runtime.close(GUARD_S)
    assert not any(name in GAUGES for name, _ in shown())


def test_a_child_process_does_not_speak_for_its_parent(metrics, shared):
    metrics.loaded(Model(), Queue(queued=7).status)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what is tested
        child = os.fork()
    if child == 0:
        metrics.refresh()
        os._exit(0)
    os.waitpid(child, 0)
    assert not list(shared.glob(f"gauge_*_{child}.db"))
    assert shown()["inference_queue_depth", "m"] == 7


@pytest.mark.usefixtures("shared")
def test_what_the_app_counts_beside_us_is_on_the_page_too():
    Counter("own_total", "of the app", registry=None).inc()
    assert shown("own_total") == {("own_total", ""): 1}


def test_no_process_is_told_apart(metrics):
    metrics.loaded(Model(), Queue().status)
    text, _ = page(CollectorRegistry(), None, [])
    assert b"pid=" not in text
    assert b"\nprocess_" not in text
