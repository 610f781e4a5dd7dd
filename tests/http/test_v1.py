"""TensorFlow Serving's routes: bodies and answers as its clients know them."""

from __future__ import annotations

import json

import pytest
from served import GUARD_S, SMALL_PICTURE, Gate

from loaders.handle import ModelHandle
from loaders.signature import TabularInput, TensorInput, TextInput

PREDICT = "/v1/models/m:predict"
OF_VERSION = "/v1/models/m/versions/3:predict"
TWO_COLUMNS = TabularInput(columns=("a", "b"))


def differences(rows):
    return [float(row[0]) - float(row[1]) for row in rows]


@pytest.fixture
def columns(served):
    """A model of two named columns that answers with their difference."""
    return served(ModelHandle.from_callable(differences, name="m", version="3", input=TWO_COLUMNS))


@pytest.mark.parametrize("path", [PREDICT, OF_VERSION])
def test_rows_are_answered_with_predictions_in_their_order_and_nothing_else(served, path):
    answer = served().post({"instances": [[1, 2], [3, 4], [5, 6]], "signature_name": "serving_default"}, path)
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    assert answer.json == {"predictions": [3.0, 7.0, 11.0]}
    assert answer.headers["X-Model-Version"] == "3"


def test_columns_are_answered_with_outputs(served, columns):
    assert served().post({"inputs": [[1, 2], [3, 4]]}, PREDICT).json == {"outputs": [3.0, 7.0]}
    assert served().post({"inputs": {"x": [[1, 2], [3, 4]]}}, PREDICT).json == {"outputs": [3.0, 7.0]}
    named = {"b": [1, 2, 3], "a": [10, 20, 30]}
    assert columns.post({"inputs": named}, PREDICT).json == {"outputs": [9.0, 18.0, 27.0]}
    of_one = {"b": [[1], [2]], "a": [[10], [20]]}
    assert columns.post({"inputs": of_one}, PREDICT).json == {"outputs": [9.0, 18.0]}
    rows = [{"a": 1, "b": 2}, {"b": 4, "a": 3}]
    assert columns.post({"instances": rows}, PREDICT).json == {"predictions": [-1.0, -1.0]}
    assert columns.post({"inputs": [[5, 1]]}, PREDICT).json == {"outputs": [4.0]}


def test_texts_and_tensors_come_by_row_and_by_column(served):
    texts = served(ModelHandle.from_callable(lambda rows: [len(row) for row in rows], name="m", input=TextInput()))
    assert texts.post({"instances": ["a", "bcd"]}, PREDICT).json == {"predictions": [1, 3]}
    assert texts.post({"inputs": {"text": ["a", "bcd"]}}, PREDICT).json == {"outputs": [1, 3]}
    spec = TensorInput(shape=(2, 2), dtype="float32")
    tensors = served(ModelHandle.from_callable(lambda rows: [row.T for row in rows], name="m", input=spec))
    one = [[1, 2], [3, 4]]
    assert tensors.post({"instances": [one]}, PREDICT).json == {"predictions": [[[1, 3], [2, 4]]]}
    assert tensors.post({"inputs": [one]}, PREDICT).json == {"outputs": [[[1, 3], [2, 4]]]}


@pytest.mark.parametrize(
    "body, where",
    [
        ({}, "give either"),
        ({"instances": [[1, 2]], "inputs": [[1, 2]]}, "give either"),
        ({"instances": None}, "instances: must be a list"),
        ({"instances": {"0": [1, 2]}}, "instances: must be a list"),
        ({"instances": []}, "at least one"),
        ({"instances": [[1]]}, "instances[0]"),
        ({"instances": [[1, 2], [1, True]]}, "instances[1]"),
        ({"instances": [{"a": 1}]}, "instances[0]"),
        ({"instances": [[1, 2]], "signature_name": "train"}, "signature_name: must be serving_default"),
        ({"instances": [[1, 2]], "signature_name": 5}, "signature_name"),
        ({"instances": [[1, 2]], "timeout_ms": 5}, "none of instances, inputs, signature_name"),
        ({"inputs": 5}, "inputs: must be a list, or an object of lists"),
        ({"inputs": {"a": 1, "b": [2]}}, "inputs: must be a list, or an object of lists"),
        ({"inputs": {"a": [1, 2], "b": [2]}}, "inputs: the columns differ in length"),
        ({"inputs": None}, "inputs: must be a list, or an object of lists"),
        ({"inputs": []}, "inputs: must hold at least one"),
        ({"inputs": {"a": [], "b": []}}, "inputs: must hold at least one"),
        ({"inputs": {}}, "inputs: must hold at least one"),
        ({"inputs": {"a": [1, 2]}}, "inputs: lacks the column 'b'"),
        ({"inputs": {"a": [1], "b": [2], "c": [3]}}, "inputs: has a column that the model does not know"),
        ({"inputs": {"a": [[[1]]], "b": [2]}}, "inputs.a[0][0]: must be a number"),
        ({"inputs": {"a": [1, 2], "b": [2, True]}}, "inputs.b[1]: must be a number"),
        ({"inputs": {"a": [[1], ["x"]], "b": [2, 3]}}, "inputs.a[1][0]: must be a number"),
        ({"inputs": [[1, 2], [1]]}, "inputs[1]: has 1 values"),
        ({"inputs": [[1, 2], {"a": 1, "b": True}]}, "inputs[1].b: must be a number"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
)
def test_what_is_no_valid_input_is_refused_with_the_place(columns, body, where):
    answer = columns.post(body, PREDICT)
    assert answer.status_code == 422, answer.text
    assert answer.json.keys() == {"error"}
    assert where in answer.json["error"]
    assert "inputs" not in body or "instances[" not in answer.json["error"]
    assert columns.post({"instances": [[3, 1]]}, PREDICT).json == {"predictions": [2.0]}


COLOURS = ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=SMALL_PICTURE)
TEXTS = ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=TextInput())
SQUARES = ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=TensorInput((2, 2), "float32"))
ANY_SHAPE = ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=TensorInput((None,), "float32"))


@pytest.mark.parametrize(
    "model, values, place, status",
    [
        (None, [[1], [True]], "[1][0]: must be a number", 422),
        (None, [[1], []], "[1]: must not be empty", 422),
        (TEXTS, ["a", 5], "[1]: must be a string", 422),
        (TEXTS, ["a", "b" * 200], "characters in {}[1] is over the limit of 100 (MAX_TEXT_CHARS)", 413),
        (COLOURS, [{"b64": "-"}], "[0].b64: is not base64", 422),
        (COLOURS, [{"b64": "JVBERi0xLjQK"}], "{}[0]", 415),
        (SQUARES, [[[1, 2], [3, None]]], "[0][1][1]: must be a number", 422),
        (ANY_SHAPE, [[1, 2], [3]], "[1]: differs in shape from {}[0]", 422),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", [None, "the-callers-own"])
def test_what_is_wrong_in_the_only_input_is_named_where_it_was_sent(served, model, values, place, status, name):
    server = served(max_text_chars=100) if model is None else served(model, max_text_chars=100)
    only = "inputs" if name is None else "inputs.*"
    answer = server.post({"inputs": values if name is None else {name: values}}, PREDICT)
    assert answer.status_code == status, answer.text
    assert (place.format(only) if "{}" in place else only + place) in answer.json["error"]
    assert "instances[" not in answer.text
    assert "callers" not in answer.text


def test_several_inputs_are_refused_where_the_model_takes_one(served):
    answer = served().post({"inputs": {"a": [[1]], "b": [[2]]}}, PREDICT)
    assert (answer.status_code, "must hold one input" in answer.json["error"]) == (422, True)


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain", "APPLICATION/JSON"])
def test_the_content_type_that_a_careless_client_sends_does_not_matter(served, content_type):
    answer = served().client.post(PREDICT, data=b'{"instances": [[1, 2]]}', content_type=content_type)
    assert answer.json == {"predictions": [3.0]}


@pytest.mark.parametrize("content_type", ["application/octet-stream", "multipart/form-data", "image/png", "text/csv"])
def test_another_content_type_is_refused(served, content_type):
    answer = served().client.post(PREDICT, data=b'{"instances": [[1, 2]]}', content_type=content_type)
    assert (answer.status_code, answer.json.keys()) == (415, {"error"})


@pytest.mark.parametrize(
    "shape", ['{"instances": [[%s, 0]]}', '{"inputs": {"a": [%s], "b": [0]}}', '{"inputs": [[%s, 0]]}']
)
def test_integers_beyond_64_bits_are_exact_or_refused(columns, shape):
    def post(number: int):
        return columns.client.post(PREDICT, data=(shape % number).encode())

    assert post(2**64).json.popitem()[1] == [2.0**64]
    assert post(2**64 + 1).status_code == 422
    assert post(10**30 + 1).status_code == 422


def test_the_same_request_is_answered_with_the_same_bytes(served):
    server = served()
    body = {"instances": [[0.1, 0.2], [1e-7, 3]]}
    assert len({server.post(body, PREDICT).data for _ in range(5)}) == 1


def test_status_tells_each_version_and_whether_it_answers(repository, tmp_path):
    server = repository("a/1", "a/2", "b/1", model_name="a", admin_token="secret-token")
    (tmp_path / "a" / "3").mkdir()
    (tmp_path / "a" / "3" / "jitney.toml").write_text("no toml")

    def states(path: str) -> dict[str, tuple[str, str]]:
        statuses = server.client.get(path).json["model_version_status"]
        return {one["version"]: (one["state"], one["status"]["error_code"]) for one in statuses}

    assert states("/v1/models/a") == dict.fromkeys(("1", "2", "3"), ("AVAILABLE", "OK"))
    assert states("/v1/models/a/versions/1") == {"1": ("AVAILABLE", "OK")}
    assert server.post({"instances": [[1]]}, "/v1/models/a/versions/3:predict").status_code == 503
    assert server.runtime.unload("a", "1")
    assert states("/v1/models/a") == {"1": ("END", "OK"), "2": ("AVAILABLE", "OK"), "3": ("END", "UNKNOWN")}
    for path in ("/v1/models/c", "/v1/models/a/versions/9", "/v1/models/c/versions/1"):
        answer = server.client.get(path)
        assert (answer.status_code, answer.json.keys()) == (404, {"error"})


def test_a_version_that_is_not_loaded_yet_is_loaded_and_answers(repository):
    server = repository("a/1", "a/2", "b/1", model_name="a", model_cache_size=1)
    for path, answered in [
        ("/v1/models/a:predict", "a/2"),
        ("/v1/models/a/versions/1:predict", "a/1"),
        ("/v1/models/b:predict", "b/1"),
        ("/v1/models/a:predict", "a/2"),
    ]:
        answer = server.post({"instances": [[1]]}, path)
        assert answer.json == {"predictions": [answered]}
        assert answer.headers["X-Model-Version"] == answered[-1]


def test_while_the_model_loads_its_status_is_not_ready_instead_of_unknown(served):
    gate = Gate()
    handle = ModelHandle.from_callable(gate, name="m", version="3", input=TabularInput(width=1))
    server = served(handle, warmup=True, ready=False)
    try:
        assert gate.started.wait(GUARD_S)
        for answer in (server.client.get("/v1/models/m"), server.post({"instances": [[1]]}, PREDICT)):
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
            assert answer.json == {"error": "the model is still loading; try again in 2 s"}
    finally:
        gate.release.set()
