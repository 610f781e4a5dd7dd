from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.signature import TensorInput
from service.errors import InvalidInput
from service.inputs import InputLimits, prepare
from service.inputs.numbers import fault_in

LIMITS = InputLimits(max_image_pixels=1000, max_text_chars=1000)


def payload(spec: TensorInput, instance: Any) -> Any:
    [row] = prepare(spec, [instance], LIMITS)
    return row.payload


def faults(spec: TensorInput, *instances: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as caught:
        prepare(spec, list(instances), LIMITS)
    return [(fault.loc, fault.msg) for fault in caught.value.faults]


@pytest.mark.parametrize("shape", [None, (2, 3), (None, 3), (None, None)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int8", "uint8"])
def test_nested_numbers_become_an_array_of_the_declared_dtype(shape, dtype):
    [row] = prepare(TensorInput(shape=shape, dtype=dtype), [[[1, 2, 3], [4, 5, 6]]], LIMITS)
    assert row.payload.dtype == dtype
    assert row.payload.flags.c_contiguous
    assert row.payload.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (row.shape_key, row.length) == ((2, 3, dtype), 1)


def test_a_single_number_is_a_tensor_of_no_dimension():
    assert payload(TensorInput(shape=()), 5).shape == ()
    assert payload(TensorInput(), 5).shape == ()


def test_rows_of_a_variable_extent_may_differ_from_each_other():
    rows = prepare(TensorInput(shape=(None,)), [[1], [1, 2]], LIMITS)
    assert [row.shape_key for row in rows] == [(1, "float32"), (2, "float32")]


@pytest.mark.parametrize(
    "instance, loc, found",
    [
        ([[1, 2], [3]], "instances[0][1]", "has 1 elements"),
        ([[1, 2], 3], "instances[0][1]", "is a number"),
        ([[1, 2], []], "instances[0][1]", "must not be empty"),
        ([[1, 2], [3, 4], [5, 6]], "instances[0]", "has 3 elements"),
        ([[1, 2, 3], [4, 5, 6]], "instances[0][0]", "has 3 elements"),
        ([1, 2], "instances[0]", "has 1 dimensions"),
        (1, "instances[0]", "has 0 dimensions"),
        ([[[1], [2]], [[3], [4]]], "instances[0]", "has 3 dimensions"),
        ([], "instances[0]", "must not be empty"),
        ([[], []], "instances[0][0]", "must not be empty"),
        ("ab", "instances[0]", "has 0 dimensions"),
    ],
)
def test_a_wrong_shape_is_refused_with_the_place_and_the_shape(instance, loc, found):
    assert faults(TensorInput(shape=(2, 2)), instance) == [(loc, f"{found}; expected shape [2, 2]")]


def test_a_variable_extent_is_shown_as_any():
    assert faults(TensorInput(shape=(None, 2)), [[1, 2], [1]])[0][1].endswith("expected shape [any, 2]")


def test_without_a_declared_shape_the_rows_still_have_to_be_regular():
    assert faults(TensorInput(), [1.0], [[1, 2], [3]]) == [("instances[1][1]", "has 1 elements; expected shape [2, 2]")]
    assert faults(TensorInput(), [[1], [[2]]])[0][0] == "instances[0][1][0]"
    assert faults(TensorInput(), [])[0][1].startswith("must not be empty")


def test_nesting_without_end_is_refused():
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert "must be a number, not a list" in faults(TensorInput(), deep)[0][1]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("value", ["1", None, {}])
def test_what_is_no_number_is_refused_where_it_stands(dtype, value):
    one = True if dtype == "bool" else 1
    assert faults(TensorInput(shape=(2, 2), dtype=dtype), [[one, one], [one, value]])[0][0] == "instances[0][1][1]"


def test_booleans_and_numbers_are_not_mixed():
    assert faults(TensorInput(dtype="int64"), [1, True]) == [("instances[0][1]", "must be a number, not a boolean")]
    assert faults(TensorInput(dtype="bool"), [True, 1]) == [("instances[0][1]", "must be true or false, not a number")]
    assert payload(TensorInput(dtype="bool"), [True, False]).tolist() == [True, False]


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf])
def test_a_fraction_is_not_rounded_for_an_integer_input(value):
    [(loc, msg)] = faults(TensorInput(dtype="int64"), [1, value])
    assert loc == "instances[0][1]"
    assert "whole number" in msg


def test_a_float_that_is_a_whole_number_is_an_integer():
    result = payload(TensorInput(dtype="int64"), [1.0, 2**53 + 1])
    assert result.dtype == np.int64
    assert result.tolist() == [1, 2**53 + 1]


@pytest.mark.parametrize(
    "dtype, value",
    [("int8", 128), ("uint8", -1), ("int64", 2**63), ("uint64", 2**64), ("int32", 1e300), ("int64", 10**400)],
)
def test_an_integer_out_of_range_is_refused(dtype, value):
    [(loc, msg)] = faults(TensorInput(dtype=dtype), [0, value])
    assert loc == "instances[0][1]"
    assert f"out of the range of {dtype}" in msg


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
def test_the_ends_of_an_integer_range_are_inside(dtype):
    info = np.iinfo(dtype)
    assert payload(TensorInput(dtype=dtype), [int(info.min), int(info.max)]).tolist() == [info.min, info.max]


@pytest.mark.parametrize(
    "dtype, value", [("float16", 1e5), ("float32", 1e39), ("float64", math.inf), ("float32", math.nan)]
)
def test_a_number_that_is_not_finite_in_the_dtype_is_refused(dtype, value):
    assert faults(TensorInput(dtype=dtype), [0, value])[0][0] == "instances[0][1]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)


@given(
    json_values,
    st.sampled_from([None, (2,), (None, 2), (1, None)]),
    st.sampled_from(["float32", "float64", "int32", "uint64", "bool"]),
)
def test_any_json_gives_exactly_its_numbers_or_invalid_input(instance, shape, dtype):
    try:
        array = payload(TensorInput(shape=shape, dtype=dtype), instance)
    except InvalidInput:
        return
    if dtype == "float32":
        np.testing.assert_array_equal(array, np.array(instance, np.float64).astype(np.float32))
    else:
        assert array.tolist() == instance


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("factor", [1 - 2**-30, 1.0, 1 + 2**-30, 1 + 2**-13, 1 + 2**-10])
def test_what_rounds_to_infinity_is_out_of_range_and_nothing_below(dtype, factor):
    """The largest number and half a step above it, from both sides."""
    largest = float(np.finfo(dtype).max)
    step = largest - float(np.nextafter(np.finfo(dtype).max, np.dtype(dtype).type(0)))
    for value in (largest * factor, largest + step / 2, math.nextafter(largest + step / 2, 0)):
        if math.isfinite(value):
            with np.errstate(over="ignore"):
                held = np.float64(value).astype(dtype)
            assert (fault_in(value, np.dtype(dtype)) is None) == bool(np.isfinite(held)), value


def test_a_fault_is_found_wherever_it_stands_in_a_long_tensor():
    values = [1.0] * 5000
    for position in (0, 1023, 1024, 4999):
        values[position] = True
    assert [loc for loc, _ in faults(TensorInput(), values)] == [f"instances[0][{i}]" for i in (0, 1023, 1024, 4999)]
