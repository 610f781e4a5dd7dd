"""Which model answers: by path, by body, or by default; and what the service says it has."""

from __future__ import annotations

import pytest

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, TabularInput, TextInput

ROW = {"instances": [[1]]}


@pytest.mark.parametrize(
    "path, body, answered",
    [
        ("/predict", ROW, "a/2"),
        ("/predict", {**ROW, "model_version": "1"}, "a/1"),
        ("/predict", {**ROW, "model_version": "2"}, "a/2"),
        ("/models/a/predict", ROW, "a/2"),
        ("/models/a/predict", {**ROW, "model_version": "1"}, "a/1"),
        ("/models/b/predict", ROW, "b/1"),
        ("/models/a/versions/1/predict", ROW, "a/1"),
        ("/models/a/versions/1/predict", {**ROW, "model_version": "1"}, "a/1"),
    ],
)
def test_the_model_that_was_asked_for_answers_and_says_so(repository, path, body, answered):
    server = repository("a/1", "a/2", "b/1", model_name="a")
    answer = server.post(body, path)
    assert answer.status_code == 200, answer.json
    assert answer.json["predictions"] == [answered]
    assert f"{answer.json['model_name']}/{answer.json['model_version']}" == answered
    assert answer.headers["X-Model-Version"] == answered.partition("/")[2]


@pytest.mark.parametrize(
    "path, body, status, said",
    [
        ("/models/c/predict", ROW, 404, "no model of this name is served here; GET /models lists those that are"),
        ("/models/a/versions/3/predict", ROW, 404, "this version of the model"),
        ("/models/a%2f../predict", ROW, 404, ""),
        ("/predict", {**ROW, "model_version": "3"}, 409, "served: '1', '2'"),
        ("/predict", {**ROW, "model_version": ""}, 409, "served: '1', '2'"),
        ("/predict", {**ROW, "model_version": "../2"}, 409, "served: '1', '2'"),
        ("/models/a/versions/1/predict", {**ROW, "model_version": "2"}, 409, "'1'"),
    ],
)
def test_a_version_in_the_path_must_exist_and_one_in_the_body_must_be_had(repository, path, body, status, said):
    answer = repository("a/1", "a/2", model_name="a").post(body, path)
    assert (answer.status_code, answer.content_type) == (status, "application/problem+json")
    assert said in answer.json["detail"]


def test_without_a_default_the_name_must_be_in_the_path(repository):
    server = repository("a/1", "b/1")
    answer = server.post(ROW)
    assert answer.status_code == 404
    assert server.client.get("/healthz").json["model"] is None
    assert server.client.get("/healthz").status_code == 200
    assert "X-Model-Version" not in answer.headers
    assert (
        "several models are served here: name one, as in /models/<name>/predict; GET /models lists"
        in answer.json["detail"]
    )
    assert server.post(ROW, "/models/b/predict").json["predictions"] == ["b/1"]


def test_another_version_may_take_another_kind_of_input(repository, loader):
    loader.inputs = {"a/1": TextInput(), "a/2": ImageInput(height=2, width=2)}
    server = repository("a/1", "a/2")
    assert server.post({"instances": ["hello"], "model_version": "1"}).json["predictions"] == ["a/1"]
    answer = server.client.post(
        "/predict", data={"file": (b"", "a.png"), "model_version": "1"}, content_type="multipart/form-data"
    )
    assert answer.status_code == 415
    assert server.post({"text": "hello", "model_version": "1"}).json["prediction"] == "a/1"
    assert server.post({"text": "hello"}).status_code == 422


def test_the_service_says_what_it_has(repository, tmp_path):
    server = repository("a/1", "a/2", "b/1", model_cache_size=2, model_name="a")
    assert server.client.get("/models").json == {
        "models": [
            {
                "name": "a",
                "default_version": "2",
                "versions": [
                    {"version": "1", "state": "available"},
                    {
                        "version": "2",
                        "state": "loaded",
                        "format": "named",
                        "device": "cpu",
                        "input": "tabular",
                        "warnings": [],
                    },
                ],
            },
            {
                "name": "b",
                "default_version": "1",
                "versions": [
                    {
                        "version": "1",
                        "state": "loaded",
                        "format": "named",
                        "device": "cpu",
                        "input": "tabular",
                        "warnings": ["trained by an older library in run"],
                    }
                ],
            },
        ]
    }
    assert server.client.get("/models/b").json["name"] == "b"
    assert server.client.get("/models/c").status_code == 404
    assert server.client.post("/models").status_code == 405


def test_a_repository_that_vanished_still_serves_what_is_loaded(repository, tmp_path):
    server = repository("a/1")
    tmp_path.rename(tmp_path.with_name("moved"))
    try:
        assert server.post(ROW).json["predictions"] == ["a/1"]
        [entry] = server.client.get("/models").json["models"]
        assert [version["state"] for version in entry["versions"]] == ["loaded"]
    finally:
        tmp_path.with_name("moved").rename(tmp_path)


def test_a_single_model_is_told_the_same_way(served):
    server = served(ModelHandle.from_callable(list, name="m", version="7"))
    [entry] = server.client.get("/models").json["models"]
    assert (entry["name"], entry["default_version"]) == ("m", "7")
    assert [version["state"] for version in entry["versions"]] == ["loaded"]
    assert server.client.get("/healthz").json["model"]["version"] == "7"


def test_a_name_that_is_not_loaded_makes_no_series(repository):
    server = repository("a/1", "b/1", model_name="a", model_cache_size=1)
    for name in ("zzz", "a"):
        server.post(ROW, f"/models/{name}/versions/nothing/predict")
    page = server.client.get("/metrics").text
    assert "zzz" not in page
    assert "nothing" not in page
    assert 'model="b"' not in page


def test_a_strict_self_check_keeps_a_model_whose_rows_mix_from_being_served(served):
    mixing = ModelHandle.from_callable(
        lambda rows: [float(len(rows))] * len(rows), name="m", input=TabularInput(width=2)
    )
    server = served(mixing, warmup=True, self_check="strict", exit_on_load_error=False)
    health = server.client.get("/healthz")
    assert health.status_code == 503
    assert "an answer depends on its neighbours" in health.json["reasons"][0]
    warned = served(mixing, warmup=True)
    assert warned.post({"instances": [[1, 2]]}).status_code == 200
    [entry] = warned.client.get("/models").json["models"]
    assert "an answer depends on its neighbours" in entry["versions"][0]["warnings"][0]
    quiet = served(mixing, warmup=True, self_check="off")
    assert quiet.client.get("/models").json["models"][0]["versions"][0]["warnings"] == []


def test_of_several_models_the_description_speaks_in_general(repository, loader):
    loader.inputs = {"b/1": TextInput()}
    server = repository("a/1", "b/1", model_name="a")
    bodies = server.client.get("/openapi.json").json["components"]["schemas"]["PredictBody"]
    assert "text" in str(bodies)
