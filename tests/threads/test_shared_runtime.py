"""A runtime whose model is in another process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from loaders.signature import TabularInput
from service.batching.admission import WorkerState
from service.batching.tickets import BatchInfo, FlushReason
from service.errors import Forbidden, NotReady, UnknownModel
from service.health import readiness
from service.metrics.batches import BatchMetrics
from service.runtime import Runtime
from service.settings import Settings
from service.sharing.place import Place
from service.sharing.shared_model import SharedModel

MODEL = ModelHandle("m", "3", "onnx", lambda rows: rows, input=TabularInput(width=2))


@pytest.fixture
def heard() -> Iterator[SharedModel]:
    """The model of a runtime, for tests to tell of it what its owner would."""
    place = Place()  # nobody answers there
    # The placement would move the threads of the tests.
    runtime = Runtime(Settings(thread_placement="off"), BatchMetrics(CollectorRegistry()))
    shared = SharedModel(runtime, place.address, 0)
    runtime.share(lambda _: shared)
    runtime.start()
    yield shared
    runtime.close(0.0)
    place.close()


@pytest.fixture
def runtime(heard: SharedModel) -> Runtime:
    return heard.runtime


def test_it_is_ready_when_the_owner_has_told_of_its_model(runtime: Runtime, heard: SharedModel):
    assert readiness(runtime)[1]["reasons"] == ["loading"]
    with pytest.raises(NotReady):
        runtime.check(None, None, was_accepted=True)
    heard.owner_has_loaded(MODEL, [1.0])
    assert runtime.model is MODEL
    assert runtime.sample(MODEL) == [1.0]
    with runtime.lease() as model:
        assert model is MODEL


def test_the_next_owners_model_takes_the_place_of_the_one_before(runtime: Runtime, heard: SharedModel):
    heard.owner_has_loaded(MODEL, None)
    lease = runtime.lease()
    newer = ModelHandle("m", "4", "onnx", lambda rows: rows)
    heard.owner_has_loaded(newer, None)
    assert runtime.model is newer
    assert [known.version for known in runtime.known_models()] == ["4"]
    with lease as model:
        assert model is MODEL


def test_models_are_neither_loaded_nor_unloaded(runtime: Runtime, heard: SharedModel):
    heard.owner_has_loaded(MODEL, None)
    for change in (runtime.load, lambda: runtime.unload("m")):
        with pytest.raises(Forbidden, match="SIGHUP"):
            change()
    with pytest.raises(UnknownModel):
        runtime.lease("another")


def test_a_load_that_failed_ends_the_process_where_that_is_wanted(runtime: Runtime, heard: SharedModel):
    fatal: list[str] = []
    runtime.on_fatal = fatal.append
    heard.owner_has_failed(ModelLoadError("it is no model"))
    assert fatal == ["the model could not be loaded: it is no model"]
    assert readiness(runtime)[1]["reasons"] == ["the model could not be loaded: ModelLoadError: it is no model"]


def test_batches_are_told_of_and_counted_where_they_run(runtime: Runtime, heard: SharedModel):
    heard.owner_has_loaded(MODEL, None)
    info = BatchInfo(1, 4, FlushReason.SIZE, 10.0, 0.5, 1, 4, 1)
    heard.owner_has_run(MODEL, info, 0.25)
    totals = runtime.statistics(MODEL).totals()
    assert (totals.batches, totals.rows) == (1, 4)
    assert [batch.longest_wait_s for batch in runtime.recent.batches()] == [0.25]
    page = generate_latest(runtime.metrics.registry).decode()
    assert 'inference_rows_total{model="m",version="3"} 4' not in page
    assert 'inference_queue_depth{model="m"' not in page, "the owner shows it"


def test_the_owner_is_told_of_what_the_server_has_received(heard: SharedModel):
    assert heard.new_batcher(lambda: 7)._on_the_way() == 7


def test_its_end_does_not_wait_for_an_owner_that_is_not_there(runtime: Runtime):
    assert runtime.close(0.0)
    status = runtime.status()
    assert status is not None
    assert status.state is WorkerState.STOPPED
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("jitney-link")]
