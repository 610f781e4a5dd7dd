"""Rows and results that cross to another process arrive as what they were."""

from __future__ import annotations

import datetime as dt
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from loaders.signature import EncodedText
from service.sharing.frames import FrameError, FrameKind, FrameReader, encoded
from service.sharing.values import Unsendable, pack, unpack

DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(sizes=(16, 32, 64), endianness="?"),
    npst.complex_number_dtypes(endianness="?"),
    npst.datetime64_dtypes(endianness="?"),
    npst.unicode_string_dtypes(endianness="?", min_len=1),
    npst.byte_string_dtypes(min_len=1),
)
SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
ARRAYS = st.builds(lambda dtype, shape: (dtype, shape), DTYPES, SHAPES).flatmap(lambda one: npst.arrays(*one))
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
TEXTS = st.builds(EncodedText, st.lists(st.integers(0, 2**31), max_size=5).map(tuple), st.booleans())
LEAVES = st.one_of(SCALARS, ARRAYS, TEXTS, st.binary(), st.dates(), st.datetimes())
RESULTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)


class Pieces:
    """A stream that gives what was sent in pieces of at most `size` bytes, then ends."""

    def __init__(self, sent: bytes, size: int) -> None:
        self._sent = sent
        self._size = size

    def recv_into(self, view) -> int:
        piece, self._sent = self._sent[: min(self._size, len(view))], self._sent[min(self._size, len(view)) :]
        view[: len(piece)] = piece
        return len(piece)


def over_the_wire(values, size=7):
    described, parts = pack(values)
    sent = b"".join(encoded(FrameKind.ASK, described, parts))
    frame = FrameReader(Pieces(sent, size)).read()  # type: ignore[arg-type]
    return unpack(frame.head, frame.body)


def same(one, other) -> bool:
    """Equal in type, shape and bits, NaN and -0.0 included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return (
            math.isnan(other) if math.isnan(one) else (one, math.copysign(1, one)) == (other, math.copysign(1, other))
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    return one == other


@given(ARRAYS, st.integers(1, 4), st.integers(1, 4096))
def test_arrays_of_every_dtype_and_shape_arrive_bit_by_bit(array, count, size):
    assert same(over_the_wire([array] * count, size), [array] * count)


@given(st.lists(RESULTS, max_size=6))
def test_whatever_is_nested_arrives_as_it_was(values):
    assert same(over_the_wire(values), values)


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_texts_arrive_with_their_tokens(texts):
    assert over_the_wire(texts) == texts


@given(npst.arrays(np.float32, (3, 4)))
def test_an_array_arrives_whichever_way_it_lies_in_memory(array):
    assert same(over_the_wire([array.T, array[::2, ::-1]]), [array.T.copy(), array[::2, ::-1].copy()])


@given(st.lists(st.integers(-9, 9), min_size=1), st.sampled_from([np.int64, np.float32, np.uint8, np.bool_]))
def test_single_numbers_keep_their_type(numbers, kind):
    values = [kind(abs(number)) for number in numbers]
    assert same(over_the_wire(values), values)


def test_what_arrives_may_be_written_to_and_is_aligned():
    rows = over_the_wire([np.zeros(3, np.float32), "a", np.zeros(5)])
    assert all(row.flags.writeable and row.flags.aligned for row in rows if isinstance(row, np.ndarray))


def test_an_array_of_objects_is_sent_value_by_value():
    array = np.array([["a", None], [1.5, 2**70]], dtype=object)
    (arrived,) = over_the_wire([array])
    assert arrived.dtype == object
    assert arrived.tolist() == array.tolist()


@pytest.mark.parametrize("value", [object(), {1, 2}, np.zeros(2, [("a", "f4")]), dt.timedelta(1), float.fromhex])
def test_what_has_no_form_is_refused(value):
    with pytest.raises(Unsendable):
        pack([value])


def test_what_has_no_form_is_converted_once():
    described, parts = pack([{1}], convert=sorted)
    assert unpack(described, memoryview(b"".join(parts))) == [[1]]
    with pytest.raises(Unsendable):
        pack([{1}], convert=lambda value: value)


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.integers(-2, 9),
            st.sampled_from(
                KINDS := [
                    "rows",
                    "numbers",
                    "texts",
                    "plain",
                    "each",
                    "array",
                    "number",
                    "objects",
                    "list",
                    "tuple",
                    "mapping",
                    "bytes",
                    "text",
                    "date",
                    "<f4",
                    "|O",
                    "<i8",
                    "V8",
                ]
            ),
        ),
        lambda inner: st.lists(inner, max_size=4),
    ),
    st.binary(max_size=64),
)
def test_a_description_that_nobody_made_is_refused_and_nothing_else(described, body):
    try:
        values = unpack(json.loads(json.dumps(described)), memoryview(body))
    except FrameError:
        return
    assert isinstance(values, list)
