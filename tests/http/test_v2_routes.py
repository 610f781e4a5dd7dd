"""The Open Inference Protocol's routes in JSON and binary, over Flask's own client."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from served import GUARD_S, SMALL_PICTURE, Gate, mean_colour, sums, upper

from loaders.handle import ModelHandle
from loaders.signature import TabularInput, TensorInput, TextInput
from service.release import VERSION

INFER = "/v2/models/m/infer"
HEADER_LENGTH = "Inference-Header-Content-Length"
TOKEN = {"Authorization": "Bearer admin-token"}


def tensor(*rows: Any, name: str = "input", datatype: str = "FP64", **changes: Any) -> dict[str, Any]:
    shape = list(np.shape(np.array(rows, dtype=object)))
    return {"name": name, "shape": shape, "datatype": datatype, "data": list(rows), **changes}


def infer(server, *inputs: dict[str, Any], path: str = INFER, **more: Any):
    return server.post({"inputs": list(inputs), **more}, path)


def post_binary(server, document: dict[str, Any], tail: bytes, path: str = INFER):
    head = json.dumps(document).encode()
    return server.client.post(path, data=head + tail, headers={HEADER_LENGTH: str(len(head))})


def error_of(answer, status: int) -> str:
    """The checked error of the protocol."""
    assert (answer.status_code, answer.content_type) == (status, "application/json"), answer.text
    assert answer.json.keys() == {"error"}
    assert len(answer.data) < 8 * 1024
    assert "Traceback" not in answer.text
    assert "/srv" not in answer.text
    return answer.json["error"]


def test_the_server_says_who_it_is_and_what_it_serves(served):
    body = served().client.get("/v2").json
    assert (body["name"], body["version"]) == ("jitney", VERSION)
    assert {"binary_tensor_data", "statistics", "model_configuration", "model_repository"} <= set(body["extensions"])


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/v2/models/m"])
def test_what_is_asked_by_get_is_answered_to_head_without_a_body(served, path):
    server = served()
    assert server.client.get(path).status_code == 200
    head = server.client.head(path)
    assert (head.status_code, head.data) == (200, b"")


@pytest.mark.parametrize("path", ["/v2/models/m", "/v2/models/m/versions/3"])
def test_a_model_is_described(served, path):
    handle = ModelHandle.from_callable(sums, name="m", version="3", input=TabularInput(width=2))
    server = served(handle, warmup=True, max_batch_size=16, max_batch_latency_ms=7)
    assert server.client.get(path).json == {
        "name": "m",
        "versions": ["3"],
        "platform": "python_callable",
        "inputs": [{"name": "input", "datatype": "FP64", "shape": [-1, 2]}],
        "outputs": [{"name": "output", "datatype": "FP64", "shape": [-1]}],
    }
    config = server.client.get(path + "/config").json
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (16, [2])
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 7000
    assert server.client.get(path + "/ready").json == {"name": "m", "ready": True}


@pytest.mark.parametrize("path", [INFER, "/v2/models/m/versions/3/infer"])
def test_rows_are_answered_in_their_order_with_the_name_version_and_id(served, path):
    answer = infer(served(), tensor([1, 2], [3, 4], [5, 6]), path=path, id="my-1")
    assert answer.content_type == "application/json"
    assert answer.json == {
        "model_name": "m",
        "model_version": "3",
        "id": "my-1",
        "outputs": [{"name": "output", "datatype": "FP64", "shape": [3], "data": [3.0, 7.0, 11.0]}],
    }
    assert answer.headers["X-Model-Version"] == "3"


def test_the_same_request_is_answered_with_the_same_bytes(served):
    server = served()
    assert len({infer(server, tensor([0.1, 0.2], [1e-7, 3])).data for _ in range(5)}) == 1


def test_binary_data_comes_and_goes(served):
    document = {
        "inputs": [{"name": "input", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}],
        "parameters": {"binary_data_output": True},
    }
    answer = post_binary(served(), document, struct.pack("<4f", 1, 2, 3, 4))
    assert answer.content_type == "application/octet-stream"
    length = int(answer.headers[HEADER_LENGTH])
    assert json.loads(answer.data[:length])["outputs"] == [
        {"name": "output", "datatype": "FP64", "shape": [2], "parameters": {"binary_data_size": 16}}
    ]
    assert struct.unpack("<2d", answer.data[length:]) == (3.0, 7.0)


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64", "INT8", "UINT8", "INT32", "INT64"])
def test_every_kind_of_number_reaches_a_table(served, datatype):
    numbers = np.array([[1, 2], [3, 4]])
    if datatype == "BF16":
        data = (numbers.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    else:
        kind = {"F": "f", "I": "i", "U": "u"}[datatype[0]]
        data = numbers.astype(f"<{kind}{int(datatype.strip('FPUINT')) // 8}").tobytes()
    item = {"name": "input", "shape": [2, 2], "datatype": datatype, "parameters": {"binary_data_size": len(data)}}
    assert post_binary(served(), {"inputs": [item]}, data).json["outputs"][0]["data"] == [3.0, 7.0]


def test_a_tensor_of_booleans_is_taken_where_the_model_takes_them_and_nowhere_else(served):
    spec = TensorInput(shape=(2,), dtype="bool")
    booleans = served(ModelHandle.from_callable(lambda rows: [~row for row in rows], name="m", input=spec))
    answer = infer(booleans, tensor([True, False], datatype="BOOL"))
    assert answer.json["outputs"] == [{"name": "output", "datatype": "BOOL", "shape": [1, 2], "data": [False, True]}]
    assert "must be BOOL" in error_of(infer(booleans, tensor([1, 0], datatype="UINT8")), 400)
    assert "inputs[0].data[0][0]" in error_of(infer(served(), tensor([True, False], datatype="BOOL")), 400)


def test_named_columns_come_as_inputs_in_any_order_and_encoding(served):
    spec = TabularInput(columns=("a", "b"))
    server = served(ModelHandle.from_callable(lambda rows: [row[0] - row[1] for row in rows], name="m", input=spec))
    answer = infer(server, tensor(1, 2, name="b", datatype="INT64"), tensor([10], [20], name="a"))
    assert answer.json["outputs"][0]["data"] == [9.0, 18.0]
    document = {
        "inputs": [
            {"name": "b", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}},
            tensor(5, name="a"),
        ]
    }
    assert post_binary(server, document, struct.pack("<f", 1.5)).json["outputs"][0]["data"] == [3.5]
    message = error_of(infer(server, tensor(1, 2, name="b"), tensor(10, None, name="a")), 400)
    assert message.startswith("inputs[1].data[1]")
    assert "lack 'b'" in error_of(infer(server, tensor(1, name="a")), 400)
    assert "inputs[1].shape: has 2 rows; inputs[0] has 1" in error_of(
        infer(server, tensor(1, name="a"), tensor(1, 2, name="b")), 400
    )


def test_texts_come_as_bytes_and_one_that_was_cut_is_told(served):
    def encode(text: str):
        from loaders.signature import EncodedText

        return EncodedText(tuple(map(ord, text[:3])), truncated=len(text) > 3)

    spec = TextInput(encode=encode)
    server = served(ModelHandle.from_callable(lambda rows: [len(row.ids) for row in rows], name="m", input=spec))
    whole = infer(server, tensor("a", "bc", datatype="BYTES"))
    assert (whole.json["outputs"][0]["data"], "parameters" in whole.json) == ([1, 2], False)
    cut = infer(server, tensor("a", "bcde", datatype="BYTES"))
    assert (cut.json["outputs"][0]["data"], cut.json["parameters"]) == ([1, 3], {"truncated": True})


def test_what_is_too_long_or_no_picture_is_told_at_its_place_in_the_tensor(served):
    texts = served(ModelHandle.from_callable(upper, name="m", input=TextInput()), max_text_chars=3)
    message = error_of(infer(texts, tensor("a", "abcd", datatype="BYTES")), 413)
    assert "in inputs[0].data[1] is over the limit of 3 (MAX_TEXT_CHARS)" in message
    pictures = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE))
    message = error_of(infer(pictures, tensor("no picture", datatype="BYTES")), 415)
    assert message.startswith("inputs[0].data[0] is not a picture of a known type")


def test_outputs_are_chosen_and_an_unknown_one_is_refused_before_the_model_runs(served):
    calls = []

    def heads(rows):
        calls.append(len(rows))
        return {"low": np.array([row.min() for row in rows]), "high": np.array([row.max() for row in rows])}

    handle = ModelHandle.from_callable(heads, name="m", input=TabularInput(width=2))
    server = served(handle, warmup=True)
    answer = infer(server, tensor([1, 2]), outputs=[{"name": "high"}, {"name": "low"}])
    assert [(one["name"], one["data"]) for one in answer.json["outputs"]] == [("high", [2.0]), ("low", [1.0])]
    before = len(calls)
    message = error_of(infer(server, tensor([1, 2]), outputs=[{"name": "hi"}]), 400)
    assert message == "outputs[0].name: is no output of this model; it has 'low', 'high'"
    assert len(calls) == before


def test_a_prediction_that_is_no_tensor_is_refused_with_the_way_to_it(served):
    server = served(lambda rows: [[1.0] * int(row[0]) for row in rows])
    assert "/predict gives these predictions" in error_of(infer(server, tensor([1], [2])), 400)
    assert server.predict([1], [2]).json["predictions"] == [[1.0], [1.0, 1.0]]
    assert infer(server, tensor([2])).json["outputs"][0]["shape"] == [1, 2]


def test_parameters_of_the_model_reach_it_and_others_are_ignored(served):
    model = ModelHandle.from_callable(
        lambda rows, scale=1: [float(row[0]) * scale for row in rows], name="m", parameters=["scale"]
    )
    server = served(model)
    answer = infer(server, tensor([2]), parameters={"scale": 3, "else": "x", "priority": 3, "triton_x": 1})
    assert answer.json["outputs"][0]["data"] == [6.0]


def test_integers_beyond_64_bits_are_exact_or_refused(served):
    server = served()

    def post(number: str):
        body = b'{"inputs":[{"name":"input","datatype":"FP64","shape":[1,1],"data":[%s]}]}' % number.encode()
        return server.client.post(INFER, data=body)

    assert post(str(2**64)).json["outputs"][0]["data"] == [2.0**64]
    assert "inputs[0].data[0][0]" in error_of(post(str(2**64 + 1)), 400)
    error_of(post("9" * 5000), 400)
    error_of(post("1e400"), 400)


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"5", b'"x"', b"{}", b"{", b"\xff", b"\xef\xbb\xbf{}", b'{"inputs": []}', b'{"inputs": {}}',
     b'{"inputs": [1]}', b'{"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 1], "data": [NaN]}]}',
     b'{"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 1]}]}',
     b'{"inputs": [{"name": "input", "datatype": "FP64", "shape": [0, 1], "data": []}]}',
     b'{"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 1], "data": ["1"]}]}',
     b'{"inputs": [{"name": "input", "datatype": "FP8", "shape": [1, 1], "data": [1]}]}',
     b'{"inputs": [{"name": "secret-name", "datatype": "FP64", "shape": [1, 1], "data": [1]}]}'],
    ids=lambda body: repr(body[-40:]),
)  # fmt: skip
def test_what_is_no_request_is_refused_and_not_repeated(served, body):
    server = served()
    assert "secret-name" not in error_of(server.client.post(INFER, data=body), 400)
    assert infer(server, tensor([1, 2])).status_code == 200


@pytest.mark.parametrize("content_type", [None, "application/json", "application/octet-stream", "text/plain", "x/y"])
def test_the_content_type_is_not_asked_for(served, content_type):
    body = json.dumps({"inputs": [tensor([1, 2])]})
    assert served().client.post(INFER, data=body, content_type=content_type).status_code == 200


def test_a_timeout_in_microseconds_is_noticed_while_the_model_is_busy(served):
    gate = Gate()
    server = served(gate, max_batch_size=1)
    busy = server.in_thread(lambda: infer(server, tensor([1])))
    assert gate.started.wait(GUARD_S)
    message = error_of(infer(server, tensor([2]), parameters={"timeout": 30_000}), 504)
    assert message.startswith("no answer within 30 ms (the request's own timeout")  # not the server's 30 s
    gate.release.set()
    assert busy().status_code == 200
    assert gate.seen == [1]


def test_those_of_high_priority_go_first_whatever_they_came_after(served):
    gate = Gate()
    server = served(gate, max_batch_size=1)
    waiting = [server.in_thread(lambda: infer(server, tensor([0])))]
    assert gate.started.wait(GUARD_S)
    for row, priority in [(1, 3), (2, 0), (3, 2), (4, 1)]:
        body = {"inputs": [tensor([row])], "parameters": {"priority": priority}}
        waiting.append(server.in_thread(lambda body=body: server.post(body, INFER)))
        server.wait_queued(len(waiting) - 1)
    gate.release.set()
    assert [wait().status_code for wait in waiting] == [200] * 5
    assert gate.seen == [0, 4, 2, 3, 1]


def test_a_version_that_is_not_loaded_yet_is_ready_and_is_loaded_when_it_is_asked(repository):
    server = repository("a/1", "a/2", "b/1", model_name="a", model_cache_size=1)
    for path, answered in [("a", "a/2"), ("a/versions/1", "a/1"), ("b", "b/1"), ("a", "a/2")]:
        assert server.client.get(f"/v2/models/{path}/ready").json["ready"] is True
        answer = infer(server, tensor([1]), path=f"/v2/models/{path}/infer")
        assert answer.json["outputs"][0]["data"] == [answered]
        assert f"{answer.json['model_name']}/{answer.json['model_version']}" == answered
    assert server.client.get("/v2/models/a").json["versions"] == ["1", "2"]
    assert server.client.get("/v2/models/a/versions/1/config").json["name"] == "a"


@pytest.mark.parametrize("body", [b"garbage", b'{"parameters": {"timeout": "soon"}, "inputs": []}', b"[" * 5000])
def test_no_model_is_loaded_for_a_body_that_cannot_be_valid(repository, body):
    server = repository("a/1", "b/1", model_name="a", model_cache_size=1)
    error_of(server.client.post("/v2/models/b/infer", data=body), 400)
    assert server.runtime.peek("b") is None
    assert infer(server, tensor([1]), path="/v2/models/b/infer").status_code == 200


@pytest.mark.parametrize("path", ["/v2/models/c", "/v2/models/a/versions/9"])
@pytest.mark.parametrize("what", ["", "/config", "/stats", "/ready", "/infer"])
def test_a_model_or_version_that_there_is_not_is_not_found(repository, path, what):
    server = repository("a/1", model_name="a")
    error_of(infer(server, tensor([1]), path=path + what) if what == "/infer" else server.client.get(path + what), 404)


def test_the_index_tells_what_there_is(repository, tmp_path):
    server = repository("a/1", "a/2", "b/1", model_name="a", model_cache_size=1)
    (tmp_path / "b" / "2").mkdir()
    (tmp_path / "b" / "2" / "jitney.toml").write_text("no toml")
    assert infer(server, tensor([1]), path="/v2/models/b/versions/2/infer").status_code == 503
    assert server.runtime.unload("a", "1")

    def states(**how: Any) -> dict[str, str]:
        found = server.client.post("/v2/repository/index", **how).json
        assert all(one.keys() == {"name", "version", "state", "reason"} for one in found)
        assert str(tmp_path) not in json.dumps(found)
        assert all((one["reason"] != "") == (one["name"] + one["version"] == "b2") for one in found)
        return {f"{one['name']}/{one['version']}": one["state"] for one in found}

    every = {"a/1": "UNAVAILABLE", "a/2": "READY", "b/1": "READY", "b/2": "UNAVAILABLE"}
    assert states() == states(json={}) == states(json={"ready": False}) == every
    assert states(json={"ready": True}) == {"a/2": "READY", "b/1": "READY"}
    for wrong in ("[]", '{"ready": 1}', "nonsense", "\t"):
        error_of(server.client.post("/v2/repository/index", data=wrong), 400)


def test_models_are_loaded_and_unloaded_with_the_token(repository, tmp_path):
    server = repository("a/1", "a/2", "b/1", model_name="a", admin_token="admin-token")

    def post(path: str, body: Any = None, headers: dict[str, str] = TOKEN):
        return server.client.post(f"/v2/repository/models/{path}", json=body or {}, headers=headers)

    error_of(post("a/load", headers={}), 401)
    done = post("a/load", {"parameters": {"version": "1"}})
    assert (done.status_code, done.data) == (200, b"")
    assert infer(server, tensor([1]), path="/v2/models/a/infer").json["model_version"] == "1"
    assert post("a/load").status_code == 200
    assert infer(server, tensor([1]), path="/v2/models/a/infer").json["model_version"] == "2"
    assert post("b/unload", {"parameters": {"unload_dependents": False}}).status_code == 200
    error_of(infer(server, tensor([1]), path="/v2/models/b/infer"), 404)
    assert server.client.get("/v2/models/b/ready").status_code == 404
    error_of(post("b/unload"), 404)
    error_of(post("c/load"), 404)
    error_of(post("a/load", {"parameters": {"version": "9"}}), 404)
    assert post("b/load").status_code == 200
    assert infer(server, tensor([1]), path="/v2/models/b/infer").status_code == 200
    (tmp_path / "a" / "3").mkdir()
    (tmp_path / "a" / "3" / "jitney.toml").write_text("no toml")
    message = error_of(post("a/load"), 500)
    assert "jitney.toml" in message
    assert str(tmp_path) not in message
    assert infer(server, tensor([1]), path="/v2/models/a/infer").json["model_version"] == "2"


@pytest.mark.parametrize(
    "body, status, words",
    [
        ({"parameters": {"file:1/model.onnx": "AAAA"}}, 403, "MODEL_REPOSITORY"),
        ({"parameters": {"config": "{}"}}, 400, "parameters.config"),
        ({"parameters": {"version": 1}}, 400, "parameters.version"),
        ({"parameters": [1]}, 400, "parameters"),
        ([1], 400, "object"),
    ],
)
def test_no_model_comes_over_http_and_no_configuration(repository, body, status, words):
    server = repository("a/1", model_name="a", admin_token="admin-token")
    answer = server.client.post("/v2/repository/models/a/load", json=body, headers=TOKEN)
    message = error_of(answer, status)
    assert words in message
    assert "AAAA" not in message


def test_without_a_token_of_its_own_administration_is_off(repository):
    server = repository("a/1", model_name="a")
    for what in ("load", "unload"):
        answer = server.client.post(f"/v2/repository/models/a/{what}", headers=TOKEN)
        assert "ADMIN_TOKEN" in error_of(answer, 403)


def test_while_the_model_loads_the_server_is_live_and_nothing_is_ready(served):
    gate = Gate()
    handle = ModelHandle.from_callable(gate, name="m", version="3", input=TabularInput(width=1))
    server = served(handle, warmup=True, ready=False)
    try:
        assert gate.started.wait(GUARD_S)
        assert server.client.get("/v2/health/live").json == {"live": True}
        assert server.client.get("/v2/health/ready").status_code == 503
        assert server.client.get("/v2/models/m/ready").json == {"name": "m", "ready": False}
        for path in ("/v2/models/m", "/v2/models/m/config", "/v2/models/m/stats"):
            assert "still loading; try again in 2 s" in error_of(server.client.get(path), 503)
        assert infer(server, tensor([1])).headers["Retry-After"] == "2"
    finally:
        gate.release.set()


def test_a_server_that_stops_takes_nothing_new(served):
    server = served()
    server.runtime.begin_drain()
    assert server.client.get("/v2/health/live").status_code == 200
    assert server.client.get("/v2/health/ready").status_code == 503
    assert server.client.get("/v2/models/m/ready").status_code == 503
    assert "stopping" in error_of(infer(server, tensor([1])), 503)


@pytest.mark.parametrize("datatype", ["[" * 1000 + "]" * 1000, "[" + "1.5," * 100_000 + "1]", "1", '"FP31"', "null"])
def test_a_datatype_that_is_none_is_refused_without_being_written_out(served, datatype):
    server = served()
    body = '{"inputs": [{"name": "input", "shape": [1, 2], "datatype": ' + datatype + ', "data": [0, 0]}]}'
    answer = server.client.post("/v2/models/m/infer", data=body)
    assert answer.status_code == 400
    assert set(answer.json) == {"error"}


@pytest.mark.parametrize("path", ["/v2/models/m/infer", "/v2/repository/index"])
def test_what_is_ignored_may_not_nest_deep_either(served, path):
    tensor = '"inputs": [{"name": "input", "shape": [1, 2], "datatype": "FP64", "data": [0, 0]}], '
    answer = served().client.post(path, data="{" + tensor + '"zz": ' + "[" * 33 + "]" * 33 + "}")
    assert answer.status_code == 400
    assert "nests more than 32 deep" in answer.json["error"]
