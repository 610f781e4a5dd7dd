from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.signature import TabularInput
from service.errors import InvalidInput
from service.inputs import InputLimits, prepare

LIMITS = InputLimits(max_image_pixels=1000, max_text_chars=1000)
NULL_HINT = "; a missing value has to be allowed in the model's bundle ([input] allow_null = true)"


def payloads(spec: TabularInput, instances: list[Any]) -> list[Any]:
    return [row.payload for row in prepare(spec, instances, LIMITS)]


def faults(spec: TabularInput, instances: list[Any]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as caught:
        prepare(spec, instances, LIMITS)
    return [(fault.loc, fault.msg) for fault in caught.value.faults]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("instances", [[[1, 2.5]], [[1, 2.5], [-3, 0.1]]])
def test_rows_become_arrays_of_the_declared_dtype(dtype, instances):
    rows = prepare(TabularInput(dtype=dtype), instances, LIMITS)
    for row, instance in zip(rows, instances, strict=True):
        assert row.payload.dtype == dtype
        np.testing.assert_array_equal(row.payload, np.array(instance, dtype))
        assert (row.length, row.shape_key, row.truncated) == (1, ("f", 2), False)


@pytest.mark.parametrize(
    "value, word",
    [
        (True, "a boolean"),
        ("1.5", "a string"),
        (None, f"null{NULL_HINT}"),
        ([1], "a list"),
        ({}, "an object"),
        (b"1", "binary data"),
    ],
)
def test_what_is_no_number_is_refused_where_it_stands(value, word):
    assert faults(TabularInput(), [[1.0, 2.0], [3.0, value]]) == [
        ("instances[1][1]", f"must be a number, not {word}"),
    ]


def test_a_row_of_booleans_is_refused_at_its_first_value():
    assert faults(TabularInput(), [[True, False]])[0][0] == "instances[0][0]"


def test_ragged_rows_are_refused_with_the_row_and_the_width():
    assert faults(TabularInput(), [[1, 2, 3], [1, 2]]) == [
        ("instances[1]", "has 2 values; expected 3, like the first row")
    ]


@pytest.mark.parametrize("row", [[1, 2, 3], [1, 2, 3, 4, 5]])
@pytest.mark.parametrize("spec", [TabularInput(width=4), TabularInput(columns=("a", "b", "c", "d"))])
def test_a_row_of_the_wrong_width_is_refused_with_the_width(spec, row):
    assert faults(spec, [[1, 2, 3, 4], row]) == [("instances[1]", f"has {len(row)} values; expected 4")]


@pytest.mark.parametrize(
    "instances, loc, word",
    [
        ([1, 2, 3], "instances[0]", "must be a list of values, not a number"),
        ([[]], "instances[0]", "must not be empty"),
        ([[[1]]], "instances[0][0]", "must be a number, not a list"),
        (["abc"], "instances[0]", "must be a list of values, not a string"),
        ([{"a": 1}], "instances[0]", "must be a list of values, not an object"),
        ([[1], None], "instances[1]", "must be a list of values, not null"),
    ],
)
def test_instances_that_are_no_rows_are_refused(instances, loc, word):
    assert faults(TabularInput(), instances)[0] == (loc, word)


def test_a_number_beyond_float32_is_refused_for_float32_only():
    assert faults(TabularInput(dtype="float32"), [[1e39]]) == [("instances[0][0]", "is out of the range of float32")]
    assert payloads(TabularInput(), [[1e39]])[0].tolist() == [1e39]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("allow_null", [False, True])
def test_a_number_that_is_not_finite_is_refused(value, allow_null):
    assert faults(TabularInput(allow_null=allow_null), [[1.0, value]]) == [("instances[0][1]", "must be finite")]


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**64 - 1, 10**400])
@pytest.mark.parametrize("dtype", ["float32", "float64", "object"])
def test_an_integer_that_would_be_rounded_is_refused(value, dtype):
    [(loc, msg)] = faults(TabularInput(dtype=dtype), [[1, value]])
    assert loc == "instances[0][1]"
    assert "integer" in msg


@pytest.mark.parametrize("value", [2**53, 2**63, 2**64, 2**100])
def test_a_large_integer_that_a_float_holds_exactly_is_accepted(value):
    assert int(payloads(TabularInput(), [[value]])[0][0]) == value


def test_null_becomes_nan_only_where_it_is_allowed():
    [row] = payloads(TabularInput(allow_null=True, dtype="float32"), [[None, 2]])
    assert math.isnan(row[0])
    assert row[1] == 2
    [row] = payloads(TabularInput(allow_null=True), [[None, 2.0**60]])
    assert math.isnan(row[0])
    assert row[1] == 2.0**60


def test_objects_are_read_by_column_name_in_any_order():
    spec = TabularInput(columns=("age", "height"))
    rows = payloads(spec, [{"height": 1.8, "age": 40}, [41, 1.7], {"age": 42, "height": 1.6}])
    assert [row.tolist() for row in rows] == [[40, 1.8], [41, 1.7], [42, 1.6]]


def test_missing_columns_are_named_and_unknown_ones_counted():
    spec = TabularInput(columns=("age", "height"))
    assert faults(spec, [{"age": 1, "height": 2}, {"age": 1, "heigth": 2}]) == [
        ("instances[1]", "lacks the column 'height'"),
        ("instances[1]", "has a column that the model does not know; it knows 'age', 'height'"),
    ]
    assert faults(spec, [{"age": 1, "height": 2, "x": 3, "y": 4}, [1, 2]]) == [
        ("instances[0]", "has 2 columns that the model does not know; it knows 'age', 'height'"),
    ]
    assert faults(spec, [5])[0] == ("instances[0]", "must be a list of values or an object of columns, not a number")


def test_of_many_or_long_columns_only_some_are_shown():
    [*_, (_, msg)] = faults(TabularInput(columns=("x" * 5000, *"abcdefghi")), [dict.fromkeys("abcdefghij", 1)])
    assert len(msg) < 200
    assert msg.endswith("'a', 'b', 'c', 'd' and 5 more")


def test_text_and_numbers_mix_only_in_an_object_row():
    spec = TabularInput(columns=("age", "city"), dtype="object")
    [row] = prepare(spec, [{"city": "Bern", "age": 40}], LIMITS)
    assert row.payload == (40, "Bern")
    assert row.shape_key == ("o", 2)
    assert payloads(spec, [[True, "x"]]) == [(True, "x")]


def test_an_object_row_holds_no_containers_and_null_only_where_allowed():
    spec = TabularInput(width=2, dtype="object")
    assert [loc for loc, _ in faults(spec, [[[1], {}]])] == ["instances[0][0]", "instances[0][1]"]
    assert faults(spec, [["a", None]])[0][0] == "instances[0][1]"
    assert faults(spec, [["a", math.inf]]) == [("instances[0][1]", "must be finite")]
    assert payloads(TabularInput(width=2, dtype="object", allow_null=True), [["a", None]]) == [("a", None)]


def test_no_more_faults_are_collected_than_an_answer_shows():
    assert len(faults(TabularInput(), [["x"] * 500])) == 20


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(json_values, min_size=1, max_size=4) | st.lists(st.lists(numbers, max_size=4), min_size=1, max_size=4),
    st.sampled_from(["float32", "float64"]),
)
def test_any_json_gives_exactly_its_numbers_or_invalid_input(instances, dtype):
    try:
        rows = payloads(TabularInput(dtype=dtype), instances)
    except InvalidInput:
        return
    assert all(type(value) in (int, float) for row in instances for value in row)
    np.testing.assert_array_equal(np.stack(rows), np.array(instances, np.float64).astype(dtype))
    assert np.isfinite(np.stack(rows)).all()


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=4))
def test_rows_of_finite_numbers_and_one_width_are_always_accepted(instances):
    assert [row.tolist() for row in payloads(TabularInput(width=3), instances)] == instances


def test_a_value_of_an_object_is_named_by_its_column_and_one_of_a_list_by_its_position():
    spec = TabularInput(columns=("age", "sepal length (cm)", "x" * 5000))
    wrong = {"age": "1", "sepal length (cm)": "2", "x" * 5000: 3}
    long = {**dict.fromkeys(spec.columns, 1), "x" * 5000: "3"}
    *places, fourth = [loc for loc, _ in faults(spec, [wrong, ["1", 2, 3], long])]
    assert places == ["instances[0].age", "instances[0]['sepal length (cm)']", "instances[1][0]"]
    assert fourth.startswith("instances[2]['xxx")
    assert len(fourth) < 70


@pytest.mark.parametrize("dtype", ["float32", "float64", "object"])
@pytest.mark.parametrize("as_array", [False, True])
def test_a_null_is_refused_in_a_column_that_takes_none(dtype, as_array):
    spec = TabularInput(columns=("a", "b"), dtype=dtype, allow_null=True, without_null=(1,))
    rows: list[Any] = [[None, 2.0], [1.0, None]]
    if as_array:
        rows = [np.array(row, np.float64) for row in rows]
    [(loc, msg)] = faults(spec, rows)
    assert loc == "instances[1][1]"
    assert msg.endswith("not null: the model takes no missing value in this column")
    assert len(payloads(spec, rows[:1])) == 1
    assert faults(spec, [{"b": None, "a": 1}])[0][0] == "instances[0].b"
    assert {loc for loc, _ in faults(spec, [[math.nan, None]])} == {"instances[0][0]", "instances[0][1]"}
