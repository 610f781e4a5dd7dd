"""Where the texts of a batch go when short ones may share a row of the model: so hardly anything of it is padding."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

# Rows that hold several texts are made no longer than this, tokens, unless one text alone is.
MOST_TOKENS = 512

# What a token costs grows with its row, as attention looks at all of the row: in a row of so many tokens it costs about
# twice what it costs in a very short one. Measured on a CPU with a model of width 384; of a wider one it is less.
DOUBLE_COST_TOKENS = 2048

# Besides rows as long as the longest text, those are tried that so many rows would have to be.
FEW_ROWS = 5

# Texts of which so little would be padding, as a share of what is computed, are not put into one row: that costs a call
# of attention for each, which is about what a token or two of a small model cost.
LITTLE_PADDING = 0.1

Place = tuple[int, int]


class Packs(StrEnum):
    """How a model computes several texts together; an operator reads the value."""

    ONE_ROW = "one row"  # one behind the other, each attended to by itself
    ROWS = "rows"  # in rows of one length, with a mask that hides them from each other


class Packing(NamedTuple):
    """A model's input of `rows` rows of `length` tokens.

    `places[i]`: in which row text i is, and at which token of it it begins; within a row texts do not overlap.
    """

    rows: int
    length: int
    places: list[Place]


def pack(lengths: Sequence[int], padded: Callable[[int], int]) -> Packing:
    """The cheapest of a few ways to lay out texts of such lengths, in tokens, 1 or more each.

    `padded(tokens)`: the row length, at least as many tokens, that the model takes for so many. The rows are as long as
    the longest text, or longer where that leaves less of them empty.
    """
    longest = padded(max(lengths))
    if len(lengths) == 1:
        return _each_alone(lengths, longest)
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    total = sum(lengths)
    wider = (padded(-(-total // rows)) for rows in range(1, FEW_ROWS + 1))
    candidates = [longest, *(length for length in wider if longest < length <= MOST_TOKENS)]
    return min((_filled(lengths, order, length) for length in candidates), key=_cost)


def in_one_row(lengths: Sequence[int], padded: Callable[[int], int]) -> Packing:
    """The texts one behind the other, without padding; each in a row of its own where there would be little of it."""
    row = padded(max(lengths))
    if len(lengths) == 1 or sum(lengths) >= (1 - LITTLE_PADDING) * row * len(lengths):
        return _each_alone(lengths, row)
    ends = list(accumulate(lengths))
    return Packing(1, ends[-1], [(0, end - length) for end, length in zip(ends, lengths, strict=True)])


def _each_alone(lengths: Sequence[int], row: int) -> Packing:
    return Packing(len(lengths), row, [(number, 0) for number in range(len(lengths))])


def _cost(packing: Packing) -> int:
    return packing.rows * packing.length * (DOUBLE_COST_TOKENS + packing.length)


def _filled(lengths: Sequence[int], order: Sequence[int], length: int) -> Packing:
    """Each text, the longest first, goes where it leaves least room, or into a row of its own."""
    places: list[Place] = [(0, 0)] * len(lengths)
    rooms: list[tuple[int, int]] = []  # tokens that are free at the end of a row, and the row; least room first
    rows = 0
    for number in order:
        at = bisect_left(rooms, (lengths[number], 0))
        if at < len(rooms):
            room, row = rooms.pop(at)
        else:
            room, row = length, rows
            rows += 1
        places[number] = row, length - room
        insort(rooms, (room - lengths[number], row))
    return Packing(rows, length, places)
