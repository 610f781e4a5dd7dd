"""Shapes as the protocol writes them, bounded before any memory is asked for."""

from __future__ import annotations

import math
from typing import Any

from service.errors import InvalidInput, TooLarge
from service.inputs.nesting import MAX_DEPTH

# NumPy counts the extents of an empty array as well, with those of zero left out, and in 64 bits.
_MAX_ELEMENTS = 2**31 - 1


def read_shape(value: Any, loc: str, *, max_rows: int) -> tuple[int, ...]:
    """A shape whose first extent, the rows, is within `max_rows`; the others are bounded by their product.

    Raises InvalidInput, or TooLarge for too many rows.
    """
    if not isinstance(value, list) or not value or not all(type(extent) is int and extent >= 0 for extent in value):
        raise InvalidInput.at(loc, "must be a list of whole numbers from 0 on; the first one counts the rows")
    if len(value) > MAX_DEPTH:
        raise InvalidInput.at(loc, f"has more than {MAX_DEPTH} dimensions")
    if value[0] > max_rows:
        raise TooLarge(f"{loc}: the number of rows", max_rows, "MAX_INSTANCES")
    if math.prod(extent or 1 for extent in value) > _MAX_ELEMENTS:
        raise InvalidInput.at(loc, f"describes more than {_MAX_ELEMENTS} elements")
    return tuple(value)
