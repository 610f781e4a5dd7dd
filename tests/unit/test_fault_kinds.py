"""Telling a bad row from a full memory and from a broken device."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from support.core import Core
from support.models import Call

from service.batching.ceiling import RAISE_AFTER, Ceiling
from service.batching.faults import FaultKind, classify, log_error
from service.batching.policy import BatchLimits
from service.batching.schedulers import Fifo
from service.batching.tickets import Row
from service.errors import ModelFailed, SchedulerFailed


class OutOfMemoryError(RuntimeError):
    """Named as the framework's own."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("could not convert"), FaultKind.MODEL),
        (RuntimeError("shapes do not match"), FaultKind.MODEL),
        (RecursionError("too deep"), FaultKind.MODEL),
        (MemoryError(), FaultKind.OUT_OF_MEMORY),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), FaultKind.OUT_OF_MEMORY),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), FaultKind.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: out of memory"), FaultKind.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), FaultKind.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), FaultKind.OUT_OF_MEMORY),
        (RuntimeError("Failed to allocate memory for requested buffer of size 8"), FaultKind.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: device-side assert triggered"), FaultKind.FATAL),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), FaultKind.FATAL),
        (Exception("CUDA failure 719: unspecified launch failure"), FaultKind.FATAL),
    ],
)
def test_an_error_of_the_model_is_sorted(error: Exception, kind: FaultKind) -> None:
    assert classify(error) is kind


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, IndexError, AssertionError, OverflowError])
def test_a_caller_cannot_write_a_devices_words_into_an_error(kind: type[Exception]) -> None:
    assert classify(kind("bad text: 'CUDA error: device-side assert triggered'")) is FaultKind.MODEL
    assert classify(kind("bad text: 'CUDA out of memory'")) is FaultKind.MODEL


def test_a_ceiling_halves_and_climbs_back_by_one_row_for_many_good_batches() -> None:
    ceiling = Ceiling(8)
    ceiling.lower(8)
    assert repr(ceiling) == "<Ceiling 4 of 8>"
    for _ in range(RAISE_AFTER - 1):
        ceiling.succeeded(4)
    assert ceiling.rows == 4
    ceiling.succeeded(4)
    assert ceiling.rows == 5


def test_only_batches_at_the_ceiling_prove_anything() -> None:
    ceiling = Ceiling(8)
    ceiling.lower(8)
    for _ in range(10 * RAISE_AFTER):
        ceiling.succeeded(3)
    assert ceiling.rows == 4


def test_a_ceiling_never_falls_below_one_row_nor_rises_by_failing() -> None:
    ceiling = Ceiling(4)
    for size in (4, 2, 3, 2, 2):
        ceiling.lower(size)
    assert ceiling.rows == 1
    ceiling.lower(100)
    assert ceiling.rows == 1


class NoText(Exception):
    def __str__(self) -> str:
        return str(self.args[7])


class NoTruth(Exception):
    """Python's own traceback module asks whether an exception is true."""

    def __bool__(self) -> bool:
        raise ValueError


class NoClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        raise ValueError


class OddText(Exception):
    class Text(str):
        __slots__ = ()

        def __contains__(self, part: object) -> bool:
            raise ValueError

    def __str__(self) -> str:
        return self.Text("CUDA")


HOSTILE = [NoText, NoTruth, NoClass, OddText]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_error_that_cannot_be_shown_is_sorted_all_the_same(hostile: type[Exception]) -> None:
    assert classify(hostile()) is FaultKind.MODEL


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_error_that_cannot_be_shown_is_logged_all_the_same(
    hostile: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    log_error(logging.getLogger("jitney"), logging.ERROR, "row %d failed", 3, error=hostile())
    assert "row 3 failed" in caplog.text
    assert hostile.__name__ in caplog.text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_error_that_cannot_be_shown_costs_only_its_own_row_an_answer(hostile: type[Exception]) -> None:
    def check(call: Call) -> None:
        if "bad" in call.rows:
            raise hostile

    core = Core(before=check)
    tickets = [core.submit([row]) for row in ("a", "bad", "b", "c")]
    core.run()
    assert [core.outcome(tickets[index]) for index in (0, 2, 3)] == [["a"], ["b"], ["c"]]
    failure = core.outcome(tickets[1])
    assert isinstance(failure, ModelFailed)
    assert type(failure.__cause__) is hostile
    core.assert_at_rest()


class BrokenLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the disk is full")


def test_a_log_that_fails_costs_nobody_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Fifo):
        def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
            if rows[0].payload == "bad":
                raise NoText
            return super().select(rows, limits, passes)

    handler = BrokenLog()
    logging.getLogger("jitney").addHandler(handler)
    try:
        core = Core(max_batch_size=1, scheduler=Broken())
        tickets = [core.submit([row]) for row in ("bad", "a")]
        core.run()
    finally:
        logging.getLogger("jitney").removeHandler(handler)
    assert isinstance(core.outcome(tickets[0]), SchedulerFailed)
    assert core.outcome(tickets[1]) == ["a"]
