"""Where the texts of a batch go when short ones share a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders import TextInput
from loaders.packing import MOST_TOKENS, Packing, Packs

LENGTHS = st.lists(st.integers(1, 700), min_size=1, max_size=80)


def packed(*lengths: int, multiple: int | None = None, most: int | None = None) -> Packing:
    return TextInput(None, most, multiple, packs=Packs.ROWS).packing(lengths)


@given(LENGTHS, st.none() | st.integers(1, 64))
def test_every_text_has_room_of_its_own(lengths: list[int], multiple: int | None) -> None:
    packing = packed(*lengths, multiple=multiple)
    free = [[True] * packing.length for _ in range(packing.rows)]
    for tokens, (row, start) in zip(lengths, packing.places, strict=True):
        assert start + tokens <= packing.length
        assert all(free[row][start : start + tokens])
        free[row][start : start + tokens] = [False] * tokens
    assert not any(all(row) for row in free), "a row holds nothing"


@given(LENGTHS)
def test_no_more_is_computed_than_with_a_row_for_each(lengths: list[int]) -> None:
    packing = packed(*lengths)
    assert packing.rows <= len(lengths)
    assert packing.rows * packing.length <= len(lengths) * max(lengths)


@given(LENGTHS)
def test_rows_are_longer_than_any_text_only_up_to_a_limit(lengths: list[int]) -> None:
    assert max(lengths) <= packed(*lengths).length <= max(MOST_TOKENS, *lengths)


def test_a_row_of_several_texts_may_be_longer_than_any_text_may_be() -> None:
    assert packed(60, 40, 40, 40, most=60)[:2] == (1, 180)


@pytest.mark.parametrize(
    ("lengths", "shape"),
    [
        ([7], (1, 7)),
        ([16] * 8, (8, 16)),  # nothing would be gained by longer rows, in which a token costs more
        ([10, 5, 5], (2, 10)),
        ([100, 12, 12, 12], (1, 136)),
        ([150] + [14] * 30, (4, 150)),
    ],
)
def test_hardly_anything_is_padding(lengths: list[int], shape: tuple[int, int]) -> None:
    packing = packed(*lengths)
    assert (packing.rows, packing.length) == shape


def test_rows_are_rounded_up_like_those_of_a_text_each() -> None:
    assert packed(9, 4, 4, multiple=8)[:2] == (1, 24)
    assert packed(9, 3, 4, multiple=16)[:2] == (1, 16)
    assert packed(9, multiple=16)[:2] == (1, 16)


def one_row(*lengths: int, multiple: int | None = None) -> Packing:
    return TextInput(None, None, multiple, packs=Packs.ONE_ROW).packing(lengths)


@given(LENGTHS)
def test_in_one_row_texts_follow_each_other(lengths: list[int]) -> None:
    packing = one_row(*lengths, 1, 30)
    ends = [start + tokens for tokens, (_, start) in zip([*lengths, 1, 30], packing.places, strict=True)]
    assert packing.places == [(0, start) for start in [0, *ends[:-1]]]
    assert (packing.rows, packing.length) == (1, sum(lengths) + 31)


@pytest.mark.parametrize("lengths", [(7,), (9, 9, 9), (10, 9, 8)])
def test_texts_with_hardly_any_padding_have_a_row_each(lengths: tuple[int, ...]) -> None:
    packing = one_row(*lengths)
    assert (packing.rows, packing.length) == (len(lengths), max(lengths))
    assert packing.places == [(number, 0) for number in range(len(lengths))]


def test_a_text_that_is_alone_is_padded_as_ever() -> None:
    assert one_row(5, multiple=8)[:2] == (1, 8)
