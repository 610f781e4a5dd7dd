"""What is answered under `/models`, `/v1` and `/v2` is what `/openapi.json` describes."""

from __future__ import annotations

import pytest
from described import check, described
from served import GUARD_S, NOT_FINITE, POISON, SMALL_PICTURE, mean_colour
from test_api_description import TEXT, picture

from loaders.handle import ModelHandle
from service.http.v2.wire import HEADER_LENGTH

PATHS = [
    "/models",
    "/models/{name}",
    "/v1/models/{name}",
    "/v1/models/{name}/versions/{version}",
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/stats",
    *(f"/v2/models/{{name}}{rest}" for rest in ("", "/ready", "/config", "/stats")),
    *(f"/v2/models/{{name}}/versions/{{version}}{rest}" for rest in ("", "/ready", "/config", "/stats")),
]
ADMIN = {"X-API-Key": "let-me-in-too"}


def tensor(*values, **more):
    return {"name": "input", "datatype": "FP64", "shape": [len(values), 1], "data": list(values), **more}


@pytest.mark.parametrize("name", ["m", "other"])
@pytest.mark.parametrize("path", PATHS)
def test_what_is_told_of_models_is_as_described(served, path, name):
    server = served(warmup=True)
    server.predict([1])
    answer = server.client.get(path.replace("{name}", name).replace("{version}", "3"))
    assert answer.status_code == (404 if name == "other" and "{name}" in path else 200)
    check(described(server), answer, "get", path)


@pytest.mark.parametrize("path", PATHS)
def test_it_is_as_described_while_the_service_stops(served, path):
    server = served()
    server.runtime.begin_drain()
    answer = server.client.get(path.replace("{name}", "m").replace("{version}", "3"))
    assert answer.status_code == (503 if path.endswith("ready") else 200)
    check(described(server), answer, "get", path)


@pytest.mark.parametrize("path", PATHS)
def test_it_is_as_described_without_a_model(served, tmp_path, path):
    (tmp_path / "model.bin").touch()
    settings = {"model_path": str(tmp_path / "model.bin"), "model_format": "pickle", "exit_on_load_error": False}
    server = served(None, ready=False, **settings)
    server.runtime.batcher().wait_started(GUARD_S)
    check(described(server), server.client.get(path.replace("{name}", "m").replace("{version}", "1")), "get", path)


@pytest.mark.parametrize(
    "status, body",
    [
        (200, {"instances": [[1]]}),
        (200, {"inputs": [[1], [2]]}),
        (422, {"instances": []}),
        (422, {"instances": [["a"]]}),
        (422, {}),
        (500, {"instances": [[POISON]]}),
        (500, {"instances": [[NOT_FINITE]]}),
        (413, {"instances": [[1]] * 2000}),
    ],
    ids=lambda body: repr(body)[:60],
)
def test_answers_to_rows_of_v1_are_as_described(served, status, body):
    server = served()
    answer = server.client.post("/v1/models/m/versions/3:predict", json=body)
    assert answer.status_code == status
    check(described(server), answer, "post", "/v1/models/{name}/versions/{version}:predict")


@pytest.mark.parametrize("path", ["/v1/models/m:predict", "/v1/models/m/versions/3:predict"])
def test_reading_where_a_prediction_is_asked_for_is_a_wrong_method(served, path):
    server = served()
    answer = server.client.get(path)
    assert (answer.status_code, answer.allow.as_set()) == (405, {"post", "options"})
    assert set(answer.json) == {"error"}
    assert server.client.get("/v1/models/other:verb").status_code == 404


@pytest.mark.parametrize(
    "status, body",
    [
        (200, {"inputs": [tensor(1, 2)], "id": "7"}),
        (200, {"inputs": [tensor(1)], "parameters": {"binary_data_output": True}}),
        (400, {"inputs": [tensor(1, shape=[2, 2])]}),
        (400, {"inputs": [tensor("a")]}),
        (400, {}),
        (413, {"inputs": [tensor(1, shape=[2000, 1])]}),
        (500, {"inputs": [tensor(POISON)]}),
        (504, {"inputs": [tensor(1)], "parameters": {"timeout": 1}}),
    ],
    ids=lambda body: repr(body)[:60],
)
def test_answers_to_tensors_are_as_described(served, status, body):
    server = served()
    answer = server.client.post("/v2/models/m/infer", json=body)
    assert answer.status_code == status
    check(described(server), answer, "post", "/v2/models/{name}/infer")


def test_the_answer_to_a_text_that_was_cut_is_as_described(served):
    server = served(ModelHandle.from_callable(lambda rows: [len(row.ids) for row in rows], name="m", input=TEXT))
    body = {"inputs": [tensor("long one", datatype="BYTES")]}
    answer = server.client.post("/v2/models/m/infer", json=body)
    assert answer.json["parameters"] == {"truncated": True}
    check(described(server), answer, "post", "/v2/models/{name}/infer")


def test_the_answer_to_a_raw_picture_is_as_described(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE))
    answer = server.client.post("/v2/models/m/infer", data=picture(), headers={HEADER_LENGTH: "0"})
    assert (answer.status_code, answer.mimetype) == (200, "application/octet-stream")
    assert HEADER_LENGTH in answer.headers
    check(described(server), answer, "post", "/v2/models/{name}/infer")


@pytest.mark.parametrize("body", [None, {}, {"ready": True}, {"ready": 1}, []], ids=repr)
def test_the_index_is_as_described(served, body):
    server = served()
    answer = server.client.post("/v2/repository/index", **({} if body is None else {"json": body}))
    check(described(server), answer, "post", "/v2/repository/index")


LOAD, UNLOAD = "/v2/repository/models/{name}/load", "/v2/repository/models/{name}/unload"


@pytest.mark.parametrize(
    "status, path, name, body",
    [
        (404, LOAD, "other", {}),
        (404, UNLOAD, "other", {}),
        (403, LOAD, "m", {"parameters": {"file:1/model.onnx": "eA=="}}),
        (400, LOAD, "m", {"parameters": {"config": "{}"}}),
        *((400, path, "m", {"parameters": wrong}) for path in (LOAD, UNLOAD) for wrong in ([], 0, False, "", "a")),
        *((400, path, "m", {"parameters": {"version": 1}}) for path in (LOAD, UNLOAD)),
        (200, UNLOAD, "m", {"parameters": None}),
    ],
)
def test_answers_to_an_operator_are_as_described(served, status, path, name, body):
    server = served(admin_token="let-me-in-too")
    answer = server.client.post(path.replace("{name}", name), json=body, headers=ADMIN)
    assert answer.status_code == status, answer.text
    check(described(server), answer, "post", path)


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
def test_so_are_the_refusals_of_everybody_else(served, path):
    for status, settings in ((403, {}), (401, {"admin_token": "let-me-in-too"})):
        server = served(**settings)
        answer = server.client.post(path.replace("{name}", "m"))
        assert answer.status_code == status
        check(described(server), answer, "post", path)


def test_a_request_for_a_model_that_has_gone_is_as_described(served):
    server = served(admin_token="let-me-in-too")
    assert server.client.post("/v2/repository/models/m/unload", headers=ADMIN).status_code == 200
    answer = server.predict([1])
    assert answer.status_code == 404
    check(described(server), answer, "post", "/predict")
