"""What callers hand in, looked at where it comes in: nothing odd may reach the worker, which all callers share."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from numbers import Real
from typing import Any


def whole(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int of at least `least` that C code can hold; raises ValueError. NumPy's integers are integers,
    booleans are none.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= sys.maxsize:
        raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
    return number


def seconds(name: str, value: Any) -> float:
    """`value` as a number of at least 0; raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    return float(value)


def patience(name: str, value: Any) -> float:
    """How long a caller wants to wait, seconds; below 0 it does not wait at all. Raises ValueError."""
    if type(value) is float and value == value:  # told at once: to ask for a Real takes longer than to admit a row
        return value
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise ValueError(f"{name} must be a number of seconds, not {value!r}")
    return float(value)


def row_lengths(lengths: Sequence[Any], rows: int) -> list[int]:
    """The lengths of `rows` rows, tokens; raises ValueError that names the first wrong one."""
    if len(lengths) != rows:
        raise ValueError(f"lengths must be as many as rows: {len(lengths)} for {rows} rows")
    if rows == 1 and type(only := lengths[0]) is int and 1 <= only <= sys.maxsize:  # as most are, told at once
        return [only]
    if set(map(type, lengths)) == {int} and min(lengths) >= 1 and max(lengths) <= sys.maxsize:
        return list(lengths)
    return [whole(f"lengths[{index}]", length) for index, length in enumerate(lengths)]
