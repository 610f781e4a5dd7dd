"""From the tensors of a request to the rows of a model, and places of rows told as places in tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from loaders.signature import ImageInput, InputSpec, TabularInput, TensorInput, TextInput
from service.errors import Fault, InvalidInput
from service.http.v2.inputs import relocated, to_instances
from service.inputs import InputLimits, prepare

LIMITS = InputLimits(max_image_pixels=1000, max_text_chars=1000)
COLUMNS = TabularInput(columns=("age", "height"))
PEOPLE = TabularInput(columns=("age", "city"), dtype="object", allow_null=True)


def elements(*values: bytes, shape: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape or (len(values),))


def payloads(spec: InputSpec, **inputs: npt.NDArray[Any]) -> list[Any]:
    return [row.payload for row in prepare(spec, to_instances(spec, inputs), LIMITS)]


def fault(spec: InputSpec, **inputs: npt.NDArray[Any]) -> Fault:
    """The first fault of a request, from the tensors to the prepared rows, at its place in the tensors."""
    with pytest.raises(InvalidInput) as caught:
        payloads(spec, **inputs)
    return relocated(caught.value, spec, inputs).faults[0]


def test_the_rows_of_a_matrix_reach_the_model_without_a_copy_of_each():
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows = to_instances(TabularInput(dtype="float32"), {"input": matrix})
    assert all(np.shares_memory(row, matrix) for row in rows)
    assert [row.tolist() for row in payloads(TabularInput(dtype="float32"), input=matrix)] == matrix.tolist()


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_columns_are_put_together_in_the_models_order(shape):
    height, age = np.array([1.5, 1.75]).reshape(shape), np.array([40.0, 41.0]).reshape(shape)
    rows = payloads(COLUMNS, height=height, age=age)
    assert [row.tolist() for row in rows] == [[40, 1.5], [41, 1.75]]
    assert type(to_instances(COLUMNS, {"height": height, "age": age})[0]) is np.ndarray


def test_columns_of_several_datatypes_keep_their_values():
    rows = payloads(COLUMNS, age=np.array([2**53]), height=np.array([0.5], np.float32))
    assert rows[0].tolist() == [2.0**53, 0.5]
    place = fault(COLUMNS, height=np.array([0.5, 0.5]), age=np.array([0, 2**53 + 1]))
    assert place.loc == "inputs[1].data[1]"


def test_a_table_with_named_columns_is_also_taken_whole():
    assert payloads(COLUMNS, input=np.array([[40.0, 1.5]]))[0].tolist() == [40, 1.5]


def test_a_table_of_numbers_and_texts_is_taken_by_column():
    rows = payloads(PEOPLE, city=elements(b"Bern", "Zürich".encode()), age=np.array([40.0, math.nan]))
    assert rows == [(40.0, "Bern"), (None, "Zürich")]
    assert payloads(PEOPLE, city=elements(b"Bern"), age=np.array([True])) == [(True, "Bern")]


def test_texts_are_utf_8():
    assert payloads(TextInput(), input=elements(b"a", "é".encode(), shape=(2, 1))) == ["a", "é"]
    assert fault(TextInput(), input=elements(b"a", b"\xff")) == Fault("inputs[0].data[1]", "is not UTF-8")
    assert fault(PEOPLE, age=np.array([1.0]), city=elements(b"\xff")) == Fault("inputs[1].data[0]", "is not UTF-8")


def test_pictures_are_the_bytes_of_their_files():
    assert to_instances(ImageInput(8, 8), {"input": elements(b"\xff\xd8", b"GIF")}) == [b"\xff\xd8", b"GIF"]


@pytest.mark.parametrize("shape", [(2, 3), (None, 3), None])
def test_a_tensor_is_split_along_its_first_dimension(shape):
    batch = np.arange(12, dtype=np.int64).reshape(2, 2, 3)
    rows = payloads(TensorInput(shape=shape, dtype="int64"), input=batch)
    np.testing.assert_array_equal(np.stack(rows), batch)
    assert np.shares_memory(rows[0], batch)


def test_a_row_of_a_tensor_may_be_one_number():
    rows = payloads(TensorInput(shape=(), dtype="int64"), input=np.array([5, 6]))
    assert [(row.shape, row.tolist()) for row in rows] == [((), 5), ((), 6)]


@pytest.mark.parametrize(
    "spec, inputs, loc, words",
    [
        (TabularInput(), {}, "inputs", "lack 'input'"),
        (COLUMNS, {"age": np.zeros(1)}, "inputs", "lack 'height'"),
        (COLUMNS, {"age": np.zeros(1), "input": np.zeros((1, 2))}, "inputs", "single columns"),
        (COLUMNS, {"age": np.zeros(2), "height": np.zeros(3)}, "inputs[1].shape", "has 3 rows; inputs[0] has 2"),
        (COLUMNS, {"age": np.zeros(2), "height": np.zeros((2, 2))}, "inputs[1].shape", "must be [rows] or [rows, 1]"),
        (COLUMNS, {"age": np.zeros(2), "height": np.zeros((2, 1, 1))}, "inputs[1].shape", "must be [rows] or"),
        (TabularInput(), {"input": np.zeros(2)}, "inputs[0].shape", "has 1 dimensions; expected [rows, values]"),
        (TabularInput(width=3), {"input": np.zeros((1, 2))}, "inputs[0].data[0]", "has 2 values; expected 3"),
        (TabularInput(), {"input": np.array([[0, math.inf]])}, "inputs[0].data[0][1]", "must be finite"),
        (TabularInput(), {"input": elements(b"1", shape=(1, 1))}, "inputs[0].data[0][0]", "not a string"),
        (TabularInput(), {"input": np.array([[True]])}, "inputs[0].data[0][0]", "not a boolean"),
        (TabularInput(), {"input": np.zeros((2, 0))}, "inputs[0].data[0]", "must not be empty"),
        (COLUMNS, {"height": elements(b"1"), "age": elements(b"1")}, "inputs[1].data[0]", "not a string"),
        (TextInput(), {"input": np.zeros(1)}, "inputs[0].datatype", "must be BYTES"),
        (TextInput(), {"input": elements(b"a", b"b", shape=(1, 2))}, "inputs[0].shape", "must be [rows] or [rows, 1]"),
        (TextInput(), {"input": elements(b"a", shape=(1, 1, 1))}, "inputs[0].shape", "must be [rows] or [rows, 1]"),
        (ImageInput(8, 8), {"input": np.zeros(1)}, "inputs[0].datatype", "must be BYTES"),
        (TensorInput(shape=(2,)), {"input": np.zeros((1, 2))}, "inputs[0].datatype", "must be FP32"),
        (TensorInput(shape=(2,)), {"input": np.zeros((1, 3), "f4")}, "inputs[0].data[0]", "has 3 elements"),
        (
            TensorInput(shape=(2, 2)),
            {"input": np.array([[[0, 0], [0, math.nan]]], "f4")},
            "inputs[0].data[0][1][1]",
            "must be finite",
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_place_in_the_tensors(spec, inputs, loc, words):
    found = fault(spec, **inputs)
    assert found.loc == loc
    assert words in found.msg


def test_every_fault_is_moved_and_places_that_are_no_rows_stay():
    error = InvalidInput(Fault("instances", "a"), Fault("instances[7]", "b"), Fault("parameters.proba", "c"))
    moved = relocated(error, TextInput(), ["input"])
    assert [fault.loc for fault in moved.faults] == ["inputs", "inputs[0].data[7]", "parameters.proba"]


def test_no_rows_are_no_instances():
    assert to_instances(TabularInput(), {"input": np.zeros((0, 2))}) == []
    assert to_instances(COLUMNS, {"age": np.zeros(0), "height": np.zeros(0)}) == []
