"""Which loaded models stay when there are too many."""

from __future__ import annotations

import pytest

from loaders import ModelCache, ModelHandle


def handle(name: str, version: str = "1", closed: list[str] | None = None) -> ModelHandle:
    def release() -> None:
        if closed is not None:
            closed.append(f"{name}/{version}")

    return ModelHandle(name, version, "none", lambda rows: rows, release=release)


def test_the_least_recently_used_model_is_closed_when_a_new_one_comes():
    closed: list[str] = []
    cache = ModelCache(2)
    first, second, third = (handle(name, closed=closed) for name in "abc")
    cache.put(first)
    cache.put(second)
    assert cache.get(("a", "1")) is first
    cache.put(third)
    assert closed == ["b/1"]
    assert cache.keys() == [("a", "1"), ("c", "1")]
    assert cache.get(("b", "1")) is None


def test_the_same_version_loaded_again_replaces_the_old_one():
    closed: list[str] = []
    cache = ModelCache(2)
    old, new = handle("a", closed=closed), handle("a")
    cache.put(old)
    cache.put(new)
    assert closed == ["a/1"]
    assert cache.get(("a", "1")) is new
    cache.put(new)
    assert (len(cache), closed) == (1, ["a/1"])


def test_what_leaves_goes_to_whoever_retires_it_after_the_new_one_is_there():
    seen: list[tuple[str, bool]] = []
    cache = ModelCache(1, retire=lambda gone: seen.append((gone.name, ("b", "1") in cache)))
    cache.put(handle("a"))
    cache.put(handle("b"))
    assert seen == [("a", True)]


def test_models_can_be_removed_one_by_one_and_all_at_once():
    closed: list[str] = []
    cache = ModelCache(3)
    for name in "abc":
        cache.put(handle(name, closed=closed))
    assert cache.remove(("b", "1"))
    assert not cache.remove(("b", "1"))
    cache.clear()
    assert closed == ["b/1", "a/1", "c/1"]
    assert len(cache) == 0


def test_a_cache_for_no_model_at_all_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        ModelCache(0)
