"""JSON numbers, and arrays of another dtype, to arrays: strictly, no value is changed beyond the rounding of its dtype.

Booleans and strings are not numbers here, and a number that the dtype cannot hold is an error instead of
an infinity, a wrapped-around integer or a neighbouring one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from service.inputs.rows import name_of_type

# Below it a float64 holds every integer; 2**52 leaves room for the rounding of the norm in `to_array`.
_SAFE_NORM = 2.0**52

# Up to it a float64 holds every integer.
_SAFE_INTEGER = 2**53

# From here on a JSON parser may have made a float of an integer that has no place in 64 bits.
_LEAST_ROUNDED = 2.0**63

# Values that are looked at one by one when there is a fault among them.
_STRETCH = 1024

_REAL = frozenset({int, float})
_REAL_OR_NULL = _REAL | {type(None)}


class MayBeRounded(Exception):
    """There is a float so large that it may have been an integer of other digits in the text it was read from."""


def raise_if_rounded(values: Iterable[Any]) -> None:
    """Raise MayBeRounded for a float of 2**63 or more in either direction."""
    if any(type(value) is float and abs(value) >= _LEAST_ROUNDED for value in values):
        raise MayBeRounded


def to_array(
    values: list[Any] | npt.NDArray[Any],
    dtype: np.dtype[Any],
    *,
    allow_null: bool = False,
    may_be_rounded: bool = False,
) -> npt.NDArray[Any] | None:
    """`values` as a 1-D array of `dtype`, or None when `fault_in` has something to say about one of them.

    dtype: boolean, integer or floating-point. With `allow_null`, None becomes NaN. With `may_be_rounded`, it raises
    MayBeRounded where large floats may stand for integers.
    values: a list, or a 1-D array, which is handed on as it is when it has the dtype already.
    """
    if isinstance(values, np.ndarray):
        if _is_held(values, dtype, allow_null=allow_null):
            return values.astype(dtype, copy=False)
        values = to_values(values, allow_null=allow_null)
    kinds = set(map(type, values))
    if dtype.kind == "b":
        return np.array(values, dtype) if kinds <= {bool} else None
    if not kinds <= (_REAL_OR_NULL if allow_null else _REAL):
        return None
    if dtype.kind == "f":
        if _is_small([value for value in values if value is not None] if allow_null else values, dtype):
            # Half the cost of np.array, which first looks for nested sequences and a common type.
            return np.fromiter(values, dtype, len(values))
    elif kinds == {int} and _fits(values, dtype):
        return np.array(values, dtype)
    if may_be_rounded:
        raise_if_rounded(values)
    if any(fault_in(value, dtype, allow_null=allow_null) for value in values):
        return None
    if dtype.kind in "iu":
        return np.array([int(value) for value in values], dtype)
    return np.array(values, np.float64).astype(dtype, copy=False)


def to_values(array: npt.NDArray[Any], *, allow_null: bool = False) -> list[Any]:
    """The elements of a 1-D array as what JSON would have held; with `allow_null`, NaN stands for a null."""
    values: list[Any] = array.tolist()
    if allow_null and array.dtype.kind == "f":
        return [None if math.isnan(value) else value for value in values]
    return values


def fault_in(value: Any, dtype: np.dtype[Any], *, allow_null: bool = False) -> str | None:
    """What keeps `value` from being one element of `dtype`; None if nothing does."""
    if dtype.kind == "b":
        return None if type(value) is bool else f"must be true or false, not {name_of_type(value)}"
    if value is None and allow_null:
        return None
    if type(value) not in _REAL:
        return f"must be a number, not {name_of_type(value)}"
    if dtype.kind in "iu":
        return _fault_in_integer(value, dtype)
    if type(value) is int and not _is_exact(value):
        return "is an integer that a 64-bit float cannot hold exactly"
    if not math.isfinite(value):
        return "must be finite"
    return None if abs(value) < _least_overflow(dtype) else f"is out of the range of {dtype.name}"


def faults_in(values: list[Any], dtype: np.dtype[Any], *, allow_null: bool = False) -> Iterator[tuple[int, str]]:
    """Position and fault of every value that cannot be an element of `dtype`.

    Stretches without a fault are passed in C: whoever sends a million values and a wrong one at their end shall not
    keep the interpreter from everybody else.
    """
    for start in range(0, len(values), _STRETCH):
        stretch = values[start : start + _STRETCH]
        if to_array(stretch, dtype, allow_null=allow_null) is None:
            for position, value in enumerate(stretch, start):
                msg = fault_in(value, dtype, allow_null=allow_null)
                if msg is not None:
                    yield position, msg


def _fault_in_integer(value: int | float, dtype: np.dtype[Any]) -> str | None:
    if type(value) is float and not value.is_integer():
        return f"must be a whole number: the model takes {dtype.name}"
    lowest, highest = _integer_range(dtype)
    return None if lowest <= value <= highest else f"is out of the range of {dtype.name}, {lowest} to {highest}"


def _is_held(array: npt.NDArray[Any], dtype: np.dtype[Any], *, allow_null: bool) -> bool:
    """Whether passes in C show that `fault_in` has nothing to say about any element; False where they do not tell."""
    kind = array.dtype.kind
    if kind == "b" or dtype.kind == "b":
        return kind == dtype.kind
    if kind == "f" and dtype.kind == "f":
        with np.errstate(over="ignore"):
            held = array.astype(dtype, copy=False)
        return bool((np.isfinite(held) | np.isnan(array) if allow_null else np.isfinite(held)).all())
    if kind not in "iu" or not array.size:
        return False
    lowest, highest = _exact_range(dtype) if dtype.kind == "f" else _integer_range(dtype)
    return lowest <= int(array.min()) and int(array.max()) <= highest


def _is_small(values: list[int | float], dtype: np.dtype[Any]) -> bool:
    """Whether one pass shows that every value is finite, in range and, if an integer, exact.

    The Euclidean norm bounds every element, and `hypot` computes it without overflow and passes NaN and infinity on.
    """
    try:
        return math.hypot(*values) < _largest_norm(dtype)
    except OverflowError:  # an integer beyond every float
        return False


def _fits(values: list[int], dtype: np.dtype[Any]) -> bool:
    lowest, highest = _integer_range(dtype)
    return lowest <= min(values) and max(values) <= highest


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


@lru_cache(maxsize=16)
def _largest_norm(dtype: np.dtype[Any]) -> float:
    return min(_SAFE_NORM, float(np.finfo(dtype).max) / 2)


@lru_cache(maxsize=16)
def _least_overflow(dtype: np.dtype[Any]) -> float:
    """The least number that rounding to nearest makes infinite: half a step above the largest of `dtype`."""
    largest = np.finfo(dtype).max
    step = float(largest) - float(np.nextafter(largest, dtype.type(0)))
    return float(largest) + step / 2


@lru_cache(maxsize=16)
def _integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


@lru_cache(maxsize=16)
def _exact_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Integers that a float64 holds exactly and a floating-point `dtype` without becoming infinite."""
    highest = min(_SAFE_INTEGER, int(np.finfo(dtype).max))
    return -highest, highest
