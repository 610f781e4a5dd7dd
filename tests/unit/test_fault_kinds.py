"""Telling a bad row from a full memory and from a broken device."""

from __future__ import annotations

import pytest

from service.batching.ceiling import RAISE_AFTER, Ceiling
from service.batching.faults import FaultKind, classify


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
