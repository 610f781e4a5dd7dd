"""Models in memory: who uses them, which one answers, and when they are freed."""

from __future__ import annotations

import pytest

from loaders.handle import ModelHandle
from service.models.loaded import LoadedModels


class Memory:
    """Loaded models with a record of what happened to them."""

    def __init__(self, capacity: int = 2) -> None:
        self.left: list[str] = []
        self.freed: list[str] = []
        self.unused = 0
        self.models = LoadedModels(
            capacity,
            on_left=lambda model: self.left.append(f"{model.name}/{model.version}"),
            free=lambda model: self.freed.append(f"{model.name}/{model.version}"),
            on_unused=self._count,
        )

    def _count(self) -> None:
        self.unused += 1

    def add(self, name: str, version: str = "1", *, make_current: bool = True) -> ModelHandle:
        model = ModelHandle.from_callable(list, name=name, version=version)
        self.models.add(model, make_current=make_current)
        return model


def test_a_model_that_nobody_uses_is_freed_when_it_is_removed():
    memory = Memory()
    memory.add("a")
    assert memory.models.remove("a", "1")
    assert (memory.left, memory.freed) == (["a/1"], ["a/1"])
    assert memory.models.lease("a", "1") is None
    assert not memory.models.remove("a", "1")


def test_a_model_in_use_is_freed_after_its_last_lease():
    memory = Memory()
    memory.add("a")
    first, second = memory.models.lease("a", None), memory.models.lease("a", "1")
    assert first is not None
    assert second is not None
    memory.models.remove("a", "1")
    assert (memory.left, memory.freed) == (["a/1"], [])
    first.__exit__(None, None, None)
    memory.models.sweep()
    assert (memory.unused, memory.freed) == (0, [])
    second.__exit__(None, None, None)
    assert (memory.unused, memory.freed) == (1, []), "freeing is the worker's business"
    memory.models.sweep()
    assert memory.freed == ["a/1"]


def test_the_end_of_a_lease_on_a_model_that_stays_wakes_nobody():
    memory = Memory()
    model = memory.add("a")
    lease = memory.models.lease("a", None)
    assert lease is not None
    with lease as leased:
        assert leased is model
    assert (memory.unused, memory.freed) == (0, [])


def test_the_default_version_is_the_one_made_current_last():
    memory = Memory(3)
    memory.add("a", "1")
    memory.add("a", "2")
    memory.add("a", "3", make_current=False)
    assert memory.models.current("a") == "2"
    memory.models.remove("a", "2")
    assert memory.models.current("a") == "3", "the newest of those that are left"
    memory.models.remove("a", "3")
    memory.models.remove("a", "1")
    assert memory.models.current("a") is None
    assert memory.models.lease("a", None) is None


def test_a_version_that_is_pushed_out_stays_the_default():
    memory = Memory(1)
    memory.add("a", "1")
    memory.add("b", "1")
    assert memory.freed == ["a/1"]
    assert memory.models.current("a") == "1"
    assert memory.models.lease("a", None) is None


def test_the_least_recently_used_model_is_pushed_out():
    memory = Memory(2)
    memory.add("a")
    memory.add("b")
    lease = memory.models.lease("a", None)
    assert lease is not None
    lease.__exit__(None, None, None)
    memory.add("c")
    assert memory.freed == ["b/1"]


def test_a_version_that_is_loaded_again_replaces_the_old_one():
    memory = Memory()
    old, new = memory.add("a"), memory.add("a")
    assert old is not new
    assert memory.models.peek("a", "1") is new
    assert (memory.left, memory.freed) == (["a/1"], ["a/1"])


def test_there_is_room_for_one_more_than_the_capacity():
    memory = Memory(1)
    memory.add("a")
    assert memory.models.has_room, "a swap needs two in memory"
    lease = memory.models.lease("a", None)
    memory.add("b")
    assert not memory.models.has_room
    assert not memory.models.wait_for_room(0.0)
    assert lease is not None
    lease.__exit__(None, None, None)
    memory.models.sweep()
    assert memory.models.wait_for_room(0.0)


def test_a_model_whose_freeing_fails_is_gone_all_the_same(caplog):
    def fail(model: ModelHandle) -> None:
        raise RuntimeError("still in use by the driver")

    models = LoadedModels(1, on_left=lambda _: None, free=fail, on_unused=lambda: None)
    models.add(ModelHandle.from_callable(list, name="a"), make_current=True)
    models.remove("a", "1")
    assert models.has_room
    assert "still in use by the driver" in caplog.text


def test_clearing_frees_everything_once_whoever_uses_it():
    memory = Memory()
    memory.add("a")
    memory.add("b")
    lease = memory.models.lease("a", None)
    memory.models.remove("a", "1")
    memory.models.clear()
    assert sorted(memory.freed) == ["a/1", "b/1"]
    assert lease is not None
    lease.__exit__(None, None, None)
    memory.models.sweep()
    memory.models.clear()
    assert sorted(memory.freed) == ["a/1", "b/1"]
    assert memory.models.all() == []


def test_the_default_name_and_its_version_are_looked_up_in_one_step():
    memory = Memory()
    memory.models.add(ModelHandle.from_callable(list, name="old"), make_current=True, make_default=True)
    memory.models.add(ModelHandle.from_callable(list, name="new"), make_current=True, make_default=True)
    lease = memory.models.lease(None, None)
    assert lease is not None
    assert lease.model.name == "new"


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_nothing_that_a_models_code_raises_ends_the_thread_that_frees_it(failure):
    def fail(model: ModelHandle) -> None:
        raise failure

    models = LoadedModels(1, on_left=lambda _: None, free=fail, on_unused=lambda: None)
    models.add(ModelHandle.from_callable(list, name="a"), make_current=True)
    models.add(ModelHandle.from_callable(list, name="b"), make_current=True)
    assert [model.name for model in models.all()] == ["b"]
