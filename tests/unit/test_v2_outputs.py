"""From predictions to named tensors, and their encoding as the caller wants it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from loaders.signature import OutputSpec
from service.errors import InvalidInput
from service.http.v2.outputs import to_tensors
from service.http.v2.request import InferRequest, WantedOutput
from service.http.v2.response import EncodedResponse, write_response
from service.outputs import present

BEST = OutputSpec(task="classification", labels=("no", "maybe", "yes"))
TOP_2 = OutputSpec(task="classification", labels=("no", "maybe", "yes"), top_k=2)


def plain(predictions: list[Any]) -> dict[str, tuple[str, Any]]:
    return {name: (array.dtype.name, array.tolist()) for name, array in to_tensors(predictions).items()}


@pytest.mark.parametrize(
    "predictions, dtype, expected",
    [
        ([1, -2], "int64", [1, -2]),
        ([1, 2**64 - 1], "uint64", [1, 2**64 - 1]),
        ([1, 2.5], "float64", [1.0, 2.5]),
        ([True, False], "bool", [True, False]),
        (["no", "ü"], "object", [b"no", "ü".encode()]),
        ([[1, 2], [3, 4]], "int64", [[1, 2], [3, 4]]),
        ([[["a"]], [["b"]]], "object", [[[b"a"]], [[b"b"]]]),
    ],
)
def test_predictions_without_a_name_are_one_output(predictions, dtype, expected):
    assert plain(predictions) == {"output": (dtype, expected)}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool"])
def test_arrays_keep_their_dtype_and_their_order(dtype):
    rows = [np.full((2, 3), number, dtype) for number in (0, 1)]
    array = to_tensors(rows)["output"]
    assert (array.dtype, array.shape) == (dtype, (2, 2, 3))
    np.testing.assert_array_equal(array, np.stack(rows))


def test_a_best_class_gives_its_label_and_its_score():
    predictions = [present(BEST, np.array(scores)) for scores in ([0.25, 0.5, 0.25], [0.0, 0.25, 0.75])]
    assert plain(predictions) == {"label": ("object", [b"maybe", b"yes"]), "score": ("float64", [0.5, 0.75])}


def test_the_best_classes_give_one_more_dimension():
    predictions = [present(TOP_2, np.array(scores)) for scores in ([0.25, 0.5, 0.125], [0.0, 0.25, 0.75])]
    assert plain(predictions) == {
        "label": ("object", [[b"maybe", b"no"], [b"yes", b"maybe"]]),
        "score": ("float64", [[0.5, 0.25], [0.75, 0.25]]),
    }


def test_heads_are_outputs_by_their_names_and_heads_inside_them_by_both():
    predictions = [
        {"mean": np.float32([1, 2]), "kind": {"label": "a", "score": 0.5}},
        {"kind": {"score": 1.0, "label": "b"}, "mean": np.float32([3, 4])},
    ]
    assert plain(predictions) == {
        "mean": ("float32", [[1, 2], [3, 4]]),
        "kind.label": ("object", [b"a", b"b"]),
        "kind.score": ("float64", [0.5, 1.0]),
    }


@pytest.mark.parametrize(
    "predictions, words",
    [
        ([[1], [1, 2]], "differ in length"),
        ([[]], "empty list"),
        ([None], "missing"),
        ([1.0, None], "missing"),
        ([1, "a"], "different kinds"),
        ([1, True], "different kinds"),
        ([1, [1]], "different kinds"),
        ([np.zeros(1), [1]], "different kinds"),
        ([{"a": 1}, {"b": 1}], "different keys"),
        ([{"a": 1}, {"a": 1, "b": 1}], "different keys"),
        ([{"a": 1}, 1], "different kinds"),
        ([np.zeros(1), np.zeros(2)], "differ in shape"),
        ([np.zeros(1), np.zeros(1, int)], "differ in datatype"),
        ([-1, 2**64 - 1], "no datatype"),
        ([{"a.b": 1, "a": {"b": 2}}], "two outputs"),
        ([{"output": 1, "": 2}], "two outputs"),
    ],
)
def test_what_tensors_cannot_hold_is_refused_with_the_way_out(predictions, words):
    with pytest.raises(InvalidInput, match="/predict") as caught:
        to_tensors(predictions)
    assert caught.value.faults[0].loc == "outputs"
    assert words in caught.value.faults[0].msg


TENSORS = {"x": np.array([[1.5, 2]], np.float32), "y": np.array([b"ab"], object), "z": np.array([True])}


def answer(*outputs: WantedOutput, binary: bool = False, id: str | None = None) -> EncodedResponse:
    request = InferRequest({}, id=id, outputs=outputs, binary_output=binary)
    return write_response(request, TENSORS, model_name="m", model_version="3")


def test_without_wishes_all_outputs_come_as_flat_json():
    response = answer(id="")
    assert response.headers == {"Content-Type": "application/json"}
    assert json.loads(response.body) == {
        "model_name": "m",
        "model_version": "3",
        "id": "",
        "outputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.0]},
            {"name": "y", "datatype": "BYTES", "shape": [1], "data": ["ab"]},
            {"name": "z", "datatype": "BOOL", "shape": [1], "data": [True]},
        ],
    }


def test_outputs_come_in_the_order_asked_for_and_their_own_word_counts_more_than_the_requests():
    response = answer(WantedOutput("y"), WantedOutput("x", False), WantedOutput("z", True), binary=True)
    length = int(response.headers["Inference-Header-Content-Length"])
    assert response.headers["Content-Type"] == "application/octet-stream"
    document = json.loads(response.body[:length])
    assert "id" not in document
    assert document["outputs"] == [
        {"name": "y", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}},
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.0]},
        {"name": "z", "datatype": "BOOL", "shape": [1], "parameters": {"binary_data_size": 1}},
    ]
    assert response.body[length:] == b"\x02\0\0\0ab\x01"


def test_an_output_that_there_is_not_is_refused_by_its_place():
    with pytest.raises(InvalidInput) as caught:
        answer(WantedOutput("x"), WantedOutput("secret"))
    [fault] = caught.value.faults
    assert (fault.loc, fault.msg) == ("outputs[1].name", "is no output of this model; it has 'x', 'y', 'z'")


def test_numbers_are_written_in_their_own_shortest_form():
    response = write_response(
        InferRequest({}), {"x": np.array([0.1], np.float32)}, model_name="m", model_version="1", parameters={"k": True}
    )
    assert b'"data":[0.1]' in response.body
    assert json.loads(response.body)["parameters"] == {"k": True}
