"""What is told about a batch that has run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from support.core import Core

from service.batching.admission import WorkerState
from service.batching.cost_table import BestSize
from service.batching.policy import BatchLimits, PackedShape
from service.batching.schedulers import Fifo
from service.batching.tickets import LaneName, Row
from service.errors import SchedulerFailed


def test_a_batch_is_as_long_as_the_model_says_it_padded_it() -> None:
    core = Core(padded_length=lambda key, longest: longest + len(str(key)))
    core.submit(["a", "b"], lengths=[5, 3], key="key")
    core.run()
    (info,) = core.listener.batches
    assert (info.tokens, info.padded_length, info.padding_tokens) == (8, 8, 8)


class Raises:
    def __call__(self, key: Any, longest: int) -> int:
        raise KeyError(key)


@pytest.mark.parametrize(
    "padded_length", [Raises(), lambda *_: None, lambda *_: "8", lambda *_: 7.5, lambda *_: float("nan"), lambda *_: 4]
)
def test_nonsense_about_the_padding_costs_nobody_an_answer(
    padded_length: Any, caplog: pytest.LogCaptureFixture
) -> None:
    core = Core(padded_length=padded_length)
    tickets = [core.submit([row], lengths=[length]) for row, length in (("a", 5), ("b", 3))]
    core.run()
    assert [core.outcome(ticket) for ticket in tickets] == [["a"], ["b"]]
    (info,) = core.listener.batches
    assert (info.padded_length, info.padding_tokens) == (5, 2)
    assert "padded_length() failed" in caplog.text
    assert core.admission.state is WorkerState.STOPPED


def in_two_rows(lengths: Sequence[int]) -> tuple[int, int]:
    return 2, max(lengths) + 1


def test_a_packed_batch_is_told_with_the_rows_that_the_model_computed() -> None:
    core = Core(packing=lambda key: in_two_rows if key == "packed" else None)
    for key in ("packed", "alone"):
        core.submit(["a", "b", "c"], lengths=[6, 4, 2], key=key)
    core.run()
    packed, alone = core.listener.batches
    assert (packed.size, packed.computed_rows, packed.padded_length) == (3, 2, 7)
    assert (packed.padding_tokens, packed.padding_share) == (2, 2 / 14)
    assert (alone.size, alone.computed_rows, alone.padded_length) == (3, 3, 6)
    assert (alone.padding_tokens, alone.padding_share) == (6, 6 / 18)


@pytest.mark.parametrize("shape", [None, (2,), (0, 7), (2, 7.5), "27"])
def test_nonsense_about_the_packing_costs_nobody_an_answer(shape: Any, caplog: pytest.LogCaptureFixture) -> None:
    core = Core(packing=lambda key: lambda lengths: shape)
    ticket = core.submit(["a", "b"], lengths=[5, 3])
    core.run()
    assert core.outcome(ticket) == ["a", "b"]
    (info,) = core.listener.batches
    assert (info.computed_rows, info.padded_length) == (2, 5)
    assert "packing() failed" in caplog.text


def test_a_batch_whose_packing_is_not_told_fails_and_the_service_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def packing(key: Hashable) -> PackedShape | None:
        if key == "bad":
            raise KeyError(key)
        return None

    core = Core(packing=packing)
    bad, good = core.submit(["a"], key="bad"), core.submit(["b"], key="good")
    core.run()
    assert isinstance(core.outcome(bad), SchedulerFailed)
    assert core.outcome(good) == ["b"]


class Sees(Fifo):
    """Arrival order, and what it was told of limits and batches."""

    def __init__(self) -> None:
        self.packs: list[bool] = []
        self.lessons: list[tuple[int, int]] = []

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
        self.packs.append(limits.packs)
        return super().select(rows, limits, passes)

    def learn(self, lane: LaneName, rows: int, length: int, seconds: float) -> None:
        self.lessons.append((rows, length))

    def enough(self, front: Row, limits: BatchLimits) -> int:
        return limits.max_rows

    def learnt(self, lane: LaneName) -> list[BestSize]:
        return []


def test_a_scheduler_is_told_which_lanes_are_packed_and_learns_how_long_their_rows_are() -> None:
    scheduler = Sees()
    core = Core(scheduler=scheduler, service_s=1.0, packing=lambda key: in_two_rows if key == "packed" else None)
    for key in ("packed", "alone"):
        core.submit(["a", "b", "c"], lengths=[6, 4, 2], key=key)
    core.run()
    core.worker._learn()
    assert scheduler.packs == [True, False]
    assert scheduler.lessons == [(3, 4), (3, 6)]
