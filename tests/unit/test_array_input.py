"""Rows that come as arrays obey the rules of rows that come as lists."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from loaders.signature import InputSpec, TabularInput, TensorInput
from service.errors import InvalidInput
from service.inputs import InputLimits, prepare
from service.inputs.numbers import to_array

LIMITS = InputLimits(max_image_pixels=1000, max_text_chars=1000)


def payloads(spec: InputSpec, instances: list[Any]) -> list[Any]:
    return [row.payload for row in prepare(spec, instances, LIMITS)]


def faults(spec: InputSpec, instances: list[Any]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as caught:
        prepare(spec, instances, LIMITS)
    return [(fault.loc, fault.msg) for fault in caught.value.faults]


def outcome(spec: InputSpec, instances: list[Any]) -> tuple[list[Any], list[tuple[str, str]]]:
    """Either the rows or the faults, as plain values that can be compared."""
    try:
        rows = prepare(spec, instances, LIMITS)
    except InvalidInput as error:
        return [], [(fault.loc, fault.msg) for fault in error.faults]
    return [(row.payload.dtype.name, row.payload.tolist(), row.shape_key) for row in rows], []


def test_an_array_of_the_models_dtype_is_not_copied():
    array = np.arange(4, dtype=np.float32)
    assert np.shares_memory(payloads(TabularInput(dtype="float32"), [array])[0], array)
    assert np.shares_memory(payloads(TensorInput(shape=(4,)), [array])[0], array)


def test_the_rows_of_a_matrix_become_rows_of_the_models_dtype():
    matrix = np.array([[1, 2], [3, 4]], np.int32)
    first, second = payloads(TabularInput(dtype="float32"), list(matrix))
    assert (first.dtype, first.tolist(), second.tolist()) == (np.float32, [1, 2], [3, 4])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("spec", [TabularInput(), TensorInput(dtype="float64")])
def test_an_element_that_is_not_finite_is_refused_where_it_stands(spec, value):
    assert faults(spec, [np.array([0.0, 1.0]), np.array([0.0, value])]) == [("instances[1][1]", "must be finite")]


def test_nan_stands_for_a_null_only_where_nulls_are_allowed_and_infinity_never_does():
    allowing = TabularInput(allow_null=True)
    assert math.isnan(payloads(allowing, [np.array([math.nan, 1.0])])[0][0])
    assert faults(allowing, [np.array([math.nan, math.inf])]) == [("instances[0][1]", "must be finite")]
    assert payloads(TabularInput(width=2, dtype="object", allow_null=True), [np.array([math.nan, 1])]) == [(None, 1.0)]


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1])
def test_an_integer_that_would_be_rounded_is_refused(value):
    assert "integer" in faults(TabularInput(), [np.array([0, value])])[0][1]
    assert payloads(TabularInput(), [np.array([0, 2**53])])[0].tolist() == [0, 2**53]


def test_rows_of_several_dtypes_are_judged_before_they_have_one():
    assert "integer" in faults(TabularInput(), [np.array([2**53 + 1]), np.array([0.5])])[0][1]


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_an_empty_array_holds_nothing_that_is_wrong(dtype):
    converted = to_array(np.zeros(0, np.int64), np.dtype(dtype))
    assert converted is not None
    assert (converted.dtype, converted.size) == (dtype, 0)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_booleans_and_numbers_are_not_taken_for_each_other(dtype):
    other = np.array([1, 0], np.int64) if dtype == "bool" else np.array([True, False])
    assert faults(TensorInput(dtype=dtype), [other])[0][0] == "instances[0][0]"


def test_a_number_beyond_the_models_dtype_is_refused():
    assert "range of float32" in faults(TabularInput(dtype="float32"), [np.array([1e39])])[0][1]
    assert "range of float16" in faults(TensorInput(dtype="float16"), [np.array([70_000])])[0][1]
    assert "range of int8" in faults(TensorInput(dtype="int8"), [np.array([128])])[0][1]
    assert "whole number" in faults(TensorInput(dtype="int8"), [np.array([1.5])])[0][1]


def test_an_array_of_the_wrong_width_or_rank_is_refused():
    assert faults(TabularInput(width=3), [np.zeros(2)]) == [("instances[0]", "has 2 values; expected 3")]
    assert faults(TabularInput(), [np.zeros(0)]) == [("instances[0]", "must not be empty")]
    assert faults(TabularInput(), [np.zeros((1, 2))])[0][0] == "instances[0]"
    assert faults(TabularInput(), [np.array(["a"], object)])[0][1] == "must be a number, not a string"


@pytest.mark.parametrize(
    "shape, loc, found",
    [
        ((2, 2), "instances[0]", "has 2 dimensions"),
        ((2, 3, 5), "instances[0][0][0]", "has 5 elements"),
        ((1, 3, 4), "instances[0]", "has 1 elements"),
        ((2, 0, 4), "instances[0][0]", "must not be empty"),
    ],
)
def test_a_tensor_of_the_wrong_shape_is_refused_with_the_place_and_the_shape(shape, loc, found):
    expected = f"{found}; expected shape [2, any, 4]"
    assert faults(TensorInput(shape=(2, None, 4)), [np.zeros(shape)]) == [(loc, expected)]


def test_rows_that_are_arrays_and_rows_that_are_lists_may_stand_beside_each_other():
    rows = payloads(TabularInput(), [[1, 2], np.array([3, 4], np.int8), np.array([5.0, 6.0])])
    assert [row.tolist() for row in rows] == [[1, 2], [3, 4], [5, 6]]


dtypes = st.sampled_from(["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64"])
matrices = dtypes.flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=2, max_dims=2, max_side=4)))


@given(matrices, st.sampled_from(["float32", "float64"]))
def test_a_table_of_arrays_fares_like_the_same_table_of_lists(matrix: npt.NDArray[Any], dtype):
    spec = TabularInput(dtype=dtype)
    assert outcome(spec, list(matrix)) == outcome(spec, matrix.tolist())


@given(matrices, st.sampled_from(["float16", "float32", "float64", "int8", "int64", "uint64", "bool"]))
def test_a_tensor_fares_like_the_same_tensor_of_lists(matrix: npt.NDArray[Any], dtype):
    spec = TensorInput(shape=(None,), dtype=dtype)
    assert outcome(spec, list(matrix)) == outcome(spec, matrix.tolist())
