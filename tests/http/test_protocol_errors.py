"""Every status that a request of another protocol can end with, in that protocol's own form."""

from __future__ import annotations

import gzip
import json

import pytest
from served import GUARD_S, NOT_FINITE, POISON, Gate

V1, V2 = "/v1/models/m:predict", "/v2/models/m/infer"


def body_of(path: str, *rows: list) -> dict:
    if path == V1:
        return {"instances": list(rows)}
    return {"inputs": [{"name": "input", "datatype": "FP64", "shape": [len(rows), len(rows[0])], "data": list(rows)}]}


def results(answer) -> list:
    assert answer.status_code == 200, answer.text
    return answer.json["predictions"] if "predictions" in answer.json else answer.json["outputs"][0]["data"]


def error_of(answer, status: int) -> str:
    """The text of an error that gives nothing away."""
    assert (answer.status_code, answer.content_type) == (status, "application/json"), answer.text
    body = json.loads(answer.data, parse_constant=pytest.fail)
    assert body.keys() == {"error"}
    assert len(answer.data) < 8 * 1024
    assert not any(word in answer.text for word in ("Traceback", "/srv", "<", "secret"))
    assert answer.headers["X-Request-ID"]
    return body["error"]


@pytest.fixture(params=[V1, V2])
def path(request) -> str:
    return request.param


def test_a_body_over_its_limit_names_the_setting_packed_or_not(served, path):
    server = served(max_body_bytes=300)
    good = json.dumps(body_of(path, [1, 2])).encode()
    assert results(server.client.post(path, data=good.ljust(300), content_type="application/json")) == [3.0]
    answer = server.client.post(path, data=good.ljust(301), content_type="application/json")
    assert "MAX_BODY_BYTES" in error_of(answer, 413)
    bomb = gzip.compress(bytes(100_000))
    answer = server.client.post(path, data=bomb, content_type="application/json", headers={"Content-Encoding": "gzip"})
    assert "after decompression" in error_of(answer, 413)
    packed = gzip.compress(good)
    for data, status in ((packed, 200), (packed[:-1], 400), (good, 400), (packed + b"x", 400)):
        answer = server.client.post(
            path, data=data, content_type="application/json", headers={"Content-Encoding": "gzip"}
        )
        assert answer.status_code == status


def test_too_many_rows_name_the_setting(served, path):
    assert "MAX_INSTANCES" in error_of(served(max_instances=2).post(body_of(path, [1], [2], [3]), path), 413)
    assert "MAX_QUEUE_SIZE" in error_of(served(max_queue_size=2).post(body_of(path, [1], [2], [3]), path), 413)


def test_an_unknown_encoding_is_refused_with_those_that_are_taken(served, path):
    answer = served().client.post(path, data=b"x", headers={"Content-Encoding": "br"})
    assert "gzip, deflate, identity" in error_of(answer, 415)
    assert answer.headers["Accept-Encoding"] == "gzip, deflate, identity"


def test_a_missing_key_is_told_before_the_body_is_read(served, path):
    server = served(api_keys="right-key")
    answer = server.client.post(path, data=b"secret")
    assert "X-API-Key" in error_of(answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    answer = server.client.post(path, json=body_of(path, [1, 2]), headers={"X-API-Key": "right-key"})
    assert results(answer) == [3.0]


def test_a_full_queue_says_when_to_come_again_in_the_text_too(served, path):
    gate = Gate()
    server = served(gate, max_batch_size=1, max_queue_size=2)
    in_the_model = server.in_thread(lambda: server.post(body_of(path, [1]), path))
    assert gate.started.wait(GUARD_S)
    waiting = server.in_thread(lambda: server.post(body_of(path, [2]), path))
    server.wait_queued(1)
    full = server.post(body_of(path, [3], [4]), path)
    message = error_of(full, 429)
    assert "MAX_QUEUE_SIZE" in message
    assert message.endswith(f"; try again in {int(full.headers['Retry-After'])} s")
    gate.release.set()
    assert [in_the_model().status_code, waiting().status_code] == [200, 200]


@pytest.mark.parametrize("number, words", [(POISON, "the model failed"), (NOT_FINITE, "finite")])
def test_what_the_model_does_wrong_is_told_without_its_own_words(served, path, number, words):
    server = served()
    message = error_of(server.post(body_of(path, [1, 1], [number, 1]), path), 500)
    assert words in message.lower()
    assert results(server.post(body_of(path, [1, 2]), path)) == [3.0]


def test_a_wrong_number_of_results_is_the_servers_fault(served, path):
    assert "output count" in error_of(served(lambda rows: []).post(body_of(path, [1]), path), 500)


def test_a_worker_that_died_says_so(served, path):
    def dies(rows):
        raise SystemExit("secret")

    server = served(dies)
    error_of(server.post(body_of(path, [1]), path), 503)
    assert error_of(server.post(body_of(path, [1]), path), 503).endswith("; try again in 2 s")


def test_a_bug_of_ours_is_told_by_nothing_but_an_id(served, path, monkeypatch):
    server = served()

    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("/srv/secret")

    monkeypatch.setitem(server.app.extensions, "jitney", Broken())
    assert "request_id" in error_of(server.post(body_of(path, [1]), path), 500)


@pytest.mark.parametrize(
    "method, where",
    [("GET", V1), ("PUT", V1), ("DELETE", V2), ("GET", V2), ("BREW", V2), ("POST", "/v1/models/m"), ("POST", "/v2"),
     ("POST", "/v2/health/live"), ("PUT", "/v2/models/m"), ("GET", "/v2/repository/index"),
     ("GET", "/v2/repository/models/m/load"), ("POST", "/v2/models/m/stats")],
)  # fmt: skip
def test_a_wrong_method_is_told_the_right_ones(served, method, where):
    answer = served().client.open(where, method=method)
    error_of(answer, 405)
    allowed = set(answer.headers["Allow"].split(", "))
    assert method not in allowed
    assert allowed & {"GET", "POST"}


@pytest.mark.parametrize(
    "where",
    ["/v1", "/v1/", "/v1/models", "/v1/models/", "/v1/models/m:predict/", "/v1/models//m", "/v1/models/m%2f..:predict",
     "/v2/", "/v2/models", "/v2/models/", "/v2/models/m/", "/v2/models/m/infer/", "/v2/models/m//infer",
     "/v2//health/live", "/v2/models/m/generate", "/v2/systemsharedmemory/status", "/v2/repository", "/v2/logging",
     "/v2/models/m/trace/setting", "/v2/models/m%2f..%2f..%2fetc/infer", "/v2/health/LIVE"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_not_there_is_not_found_in_the_protocols_form(served, where, method):
    assert error_of(served().client.open(where, method=method), 404)


@pytest.mark.parametrize("verb", ["classify", "regress", "Predict", "", "predict:predict:x"])
@pytest.mark.parametrize("where", ["/v1/models/m", "/v1/models/m/versions/3"])
@pytest.mark.parametrize("method", ["POST", "GET", "PUT", "OPTIONS"])
def test_a_verb_that_is_not_served_is_not_found_whatever_the_method(served, verb, where, method):
    error_of(served().client.open(f"{where}:{verb}", method=method), 404)


def test_a_request_id_is_taken_over_or_made(served, path):
    server = served()
    answer = server.client.post(path, json=body_of(path, [1]), headers={"X-Request-ID": "mine.1"})
    assert answer.headers["X-Request-ID"] == "mine.1"
    answer = server.client.post(path, json=body_of(path, [1]), headers={"X-Request-ID": "no good"})
    assert len(answer.headers["X-Request-ID"]) == 16
    assert {"preprocess", "queue", "model", "total"} == {
        part.split(";")[0] for part in answer.headers["Server-Timing"].split(", ")
    }


def test_of_duplicate_keys_the_last_one_counts(served, path):
    one, other = (json.dumps(body_of(path, row))[1:-1] for row in ([1, 2], [3, 4]))
    answer = served().client.post(path, data=f"{{{one},{other}}}", content_type="application/json")
    assert results(answer) == [7.0]
