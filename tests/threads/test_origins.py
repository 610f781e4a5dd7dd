"""Whoever asks may say where its request comes from, and somebody else hears whose rows each batch held."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from support.callers import Callers
from support.models import GUARD_S, GatedModel

from service.batching.batcher import ThreadedBatcher
from service.batching.tickets import BatchInfo
from service.errors import ModelFailed, PredictionFailed


class Heard:
    """Keeps what it was told of each batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Any, list[Any], list[str]]] = []

    def __call__(
        self, info: BatchInfo, key: Any, origins: Sequence[object | None], errors: Sequence[PredictionFailed]
    ) -> None:
        self.batches.append((info.size, key, list(origins), [error.reason for error in errors]))


def wait_queued(batcher: ThreadedBatcher, rows: int) -> None:
    give_up_at = time.monotonic() + GUARD_S
    while batcher.queued < rows:
        assert time.monotonic() < give_up_at, batcher
        time.sleep(0.001)


def test_each_batch_is_told_with_the_origins_of_its_rows() -> None:
    heard, model, callers = Heard(), GatedModel(), Callers()
    with ThreadedBatcher(model, max_batch_latency_s=0.0, on_origins=heard) as batcher:
        callers.start(lambda: batcher.submit(["first"]))
        assert model.started.wait(GUARD_S)
        for rows, origin in ((["a", "b"], "left"), (["c"], "right"), (["d"], None)):
            queued = batcher.queued
            callers.start(lambda rows=rows, origin=origin: batcher.ask(rows, origin=origin).results)
            wait_queued(batcher, queued + len(rows))
        model.release.set()
        assert callers.finish() == [["first"], ["a", "b"], ["c"], ["d"]]
    assert heard.batches == [(1, None, [None], []), (4, None, ["left", "left", "right", None], [])]


def test_rows_that_failed_are_told_beside_the_origins() -> None:
    def fails(rows: list[Any]) -> list[Any]:
        raise ValueError("no")

    heard = Heard()
    with (
        ThreadedBatcher(fails, max_batch_latency_s=0.0, on_origins=heard) as batcher,
        pytest.raises(ModelFailed),
    ):
        batcher.ask([1], origin="somewhere")
    assert heard.batches == [(1, None, ["somewhere"], ["model"])]


def test_who_hears_of_origins_cannot_cost_a_caller_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    def deaf(*_: Any) -> None:
        raise KeyError("deaf")

    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0, on_origins=deaf) as batcher:
        assert batcher.ask([1], origin="a").results == [1]
        assert batcher.ask([2], origin="b").results == [2]
    assert "a listener of the inference worker failed" in caplog.text
