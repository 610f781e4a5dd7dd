"""Which models and versions of a repository answer: at the start, by their names, and after what was done to them."""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import replace

import pytest
from support.callers import Callers
from support.models import GUARD_S
from support.repositories import Scripted, ask, put, registered

from service.errors import NotReady, UnknownModel
from service.health import models, readiness


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


def test_an_older_version_stands_in_for_a_broken_one_where_that_is_allowed(serve, loader):
    loader.broken |= {"a/3", "a/2"}
    runtime = serve("a/1", "a/2", "a/3", exit_on_load_error=False)
    assert (ask(runtime), loader.loads) == ("a/1", ["a/3", "a/2", "a/1"])


def test_a_default_that_could_not_be_loaded_is_not_ready(serve, loader):
    loader.broken.add("a/1")
    runtime = serve("a/1", "b/1", model_name="a", exit_on_load_error=False)
    [reason] = readiness(runtime)[1]["reasons"]
    assert "the default model cannot answer: this version of the model could not be loaded" in reason
    assert ask(runtime, "b") == "b/1"


def test_nothing_left_to_answer_is_not_ready(serve):
    runtime = serve("a/1", "b/1")
    runtime.unload("a")
    assert readiness(runtime)[0]
    runtime.unload("b")
    assert readiness(runtime)[1]["reasons"] == ["no model is left to answer"]


def test_a_model_is_loaded_on_demand_even_when_nothing_else_is(serve):
    runtime = serve("a/1", "b/1", model_name="a", model_cache_size=1)
    assert runtime.unload("a")
    assert ask(runtime, "b") == "b/1"
    (reason,) = readiness(runtime)[1]["reasons"]
    assert reason.startswith("the default model cannot answer: no model of this name is served here")
    runtime.load("a")
    assert readiness(runtime)[0]


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


def test_a_version_that_is_gone_from_disk_gives_way_for_good(serve, tmp_path):
    runtime = serve("a/1", "a/2", "b/1", model_name="a", model_cache_size=1)
    assert ask(runtime) == "a/2"
    assert ask(runtime, "b") == "b/1"
    shutil.rmtree(tmp_path / "a" / "2")
    assert ask(runtime) == "a/1"
    assert runtime.lease_now(None, None) is not None


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


def test_the_info_series_follows_a_change_of_format(serve, loader, tmp_path):
    runtime = serve("a/1")
    other = Scripted()
    other.fmt = "other"
    with registered(other):
        toml = tmp_path / "a" / "1" / "jitney.toml"
        toml.write_text(toml.read_text().replace("scripted", "other"))
        original = other.load
        other.load = lambda *args, **more: replace(original(*args, **more), fmt="other")  # type: ignore[method-assign]
        runtime.load("a")
    info = [
        sample.labels["format"]
        for family in runtime.metrics.registry.collect()
        if family.name == "inference_model_info"
        for sample in family.samples
    ]
    assert info == ["other"]
