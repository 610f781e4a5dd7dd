"""The totals of a model: every request that names it counts once, as a success or a failure."""

from __future__ import annotations

import pytest
from served import GUARD_S, NOT_FINITE, POISON, Gate

from loaders.handle import ModelHandle
from loaders.signature import TensorInput

STATS = "/v2/models/m/stats"


def counts(server, path: str = STATS) -> tuple[int, int]:
    stats = server.client.get(path).json["model_stats"][0]["inference_stats"]
    return stats["success"]["count"], stats["fail"]["count"]


def of_v2(row: list, **more) -> dict:
    return {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, len(row)], "data": row}], **more}


FORMS = {
    "/predict": lambda row: {"instances": [row]},
    "/models/m/predict": lambda row: {"instances": [row]},
    "/v1/models/m:predict": lambda row: {"instances": [row]},
    "/v2/models/m/infer": of_v2,
    "/v2/models/m/versions/3/infer": of_v2,
}


@pytest.mark.parametrize("path", FORMS)
def test_successes_and_failures_of_every_kind_add_up_to_the_requests(served, path):
    form = FORMS[path]
    server = served(max_instances=2, max_body_bytes=1000)
    assert server.post(form([1]), path).status_code == 200
    assert server.post(form([1, 2]), path).status_code == 200
    failures = [
        server.client.post(path, data=b"{", content_type="application/json"),
        server.client.post(path, data=b" " * 2000, content_type="application/json"),
        server.client.post(path, data=b"{}", content_type="application/json", headers={"Content-Encoding": "br"}),
        server.post({}, path),
        server.post(form([True]), path),
        server.post(form([POISON]), path),
        server.post(form([NOT_FINITE]), path),
    ]
    assert [answer.status_code for answer in failures[:3]] == [400, 413, 415]
    assert [answer.status_code for answer in failures[-2:]] == [500, 500]
    assert counts(server) == (2, len(failures))
    assert counts(server, "/v2/models/stats") == (2, len(failures))


def test_an_answer_that_cannot_be_written_is_a_failure(served):
    server = served(lambda rows: [None for _ in rows])
    assert server.post(of_v2([1]), "/v2/models/m/infer").status_code == 400
    assert counts(server) == (0, 1)


def test_requests_that_are_for_no_model_here_count_for_none(served):
    server = served()
    for path in ("/v2/models/n/infer", "/v2/models/m/versions/9/infer", "/v1/models/n:predict"):
        assert server.post(of_v2([1]), path).status_code == 404
    assert server.client.get("/v2/models/m/infer").status_code == 405
    assert counts(server) == (0, 0)


def test_a_deadline_that_passed_and_a_stop_are_failures(served):
    gate = Gate()
    server = served(gate, max_batch_size=1)
    busy = server.in_thread(lambda: server.post(of_v2([1]), "/v2/models/m/infer"))
    assert gate.started.wait(GUARD_S)
    assert server.post(of_v2([1], parameters={"timeout": 1000}), "/v2/models/m/infer").status_code == 504
    gate.release.set()
    assert busy().status_code == 200
    server.runtime.begin_drain()
    assert server.predict([1]).status_code == 503
    assert counts(server) == (1, 2)


def test_requests_count_for_the_version_that_answers(repository):
    server = repository("a/1", "a/2", model_name="a")
    assert server.predict([1]).status_code == 200
    assert server.predict([1], model_version="1").status_code == 200
    assert server.predict([1], model_version="1", timeout_ms=-1).status_code == 422
    assert server.predict([1, 2], model_version="1").status_code == 422
    assert server.client.post("/models/a/versions/1/predict", data=b"x").status_code == 415
    # Whose body could not be understood was for the default version.
    assert counts(server, "/v2/models/a/versions/2/stats") == (1, 1)
    assert counts(server, "/v2/models/a/versions/1/stats") == (1, 2)


def test_the_parts_of_the_time_are_no_more_than_all_of_it(served):
    model = ModelHandle.from_callable(lambda rows: [row.sum() for row in rows], name="m", input=TensorInput())
    server = served(model)
    for _ in range(3):
        assert server.post({"instances": [[1.0] * 1000]}).status_code == 200
    stats = server.client.get(STATS).json["model_stats"][0]
    parts = [stats["inference_stats"][name] for name in ("queue", "compute_input", "compute_infer", "compute_output")]
    assert {part["count"] for part in parts} == {3}
    assert all(part["ns"] > 0 for part in parts)
    assert sum(part["ns"] for part in parts) <= stats["inference_stats"]["success"]["ns"]
    assert (stats["inference_count"], stats["execution_count"]) == (3, 3)
    assert stats["batch_stats"][0]["compute_infer"]["count"] == 3
