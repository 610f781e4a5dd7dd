"""Every status that a request can end with, as a problem document that gives nothing away."""

from __future__ import annotations

import io
import json
import time

import pytest
from PIL import Image
from served import GUARD_S, NOT_FINITE, POISON, SMALL_PICTURE, Gate, mean_colour, sums, upper

from loaders.handle import ModelHandle
from loaders.signature import EncodedText, TabularInput, TensorInput, TextInput
from service.errors import DeadlineExceeded


def problem_of(answer, status: int) -> dict:
    """The checked body of an error answer."""
    assert answer.status_code == status, answer.text
    assert answer.content_type == "application/problem+json"
    assert len(answer.data) < 8 * 1024
    body = json.loads(answer.data, parse_constant=pytest.fail)
    assert body.keys() >= {"type", "title", "status", "detail", "request_id"}
    assert body["status"] == status
    assert body["request_id"] == answer.headers["X-Request-ID"]
    assert all(fault.keys() == {"loc", "msg"} for fault in body.get("errors", []))
    assert "Traceback" not in answer.text
    assert "/srv" not in answer.text
    assert "<" not in answer.text
    return body


def at(server, path: str, method: str):
    # The client would take what follows two slashes for the name of a host.
    body = {"json": {"instances": [[1]]}} if method == "POST" else {}
    return server.client.open("/", method=method, environ_overrides={"PATH_INFO": path}, **body)


@pytest.mark.parametrize(
    "path",
    ["/nope", "/predict/", "//predict", "/PREDICT", "/models/m//predict", "/models/m/n/predict", "/livez//"],
)
def test_paths_match_exactly(served, path):
    problem_of(at(served(), path, "POST"), 404)


@pytest.mark.parametrize("path", ["/healthz/", "//healthz", "/livez/", "//metrics", "/metrics/", "/./livez"])
def test_a_path_with_another_slash_is_not_redirected(served, path):
    problem_of(at(served(), path, "GET"), 404)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
def test_another_method_is_told_which_ones_are_allowed(served, method):
    answer = served().client.open("/predict", method=method)
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == {"POST", "OPTIONS"}
    if method != "HEAD":
        problem_of(answer, 405)


def test_an_unknown_method_is_refused_like_any_other(served):
    problem_of(served().client.open("/predict", method="BREW"), 405)


def test_another_version_in_the_body_is_a_conflict(served):
    server = served()
    assert server.predict([1], model_version="3").status_code == 200
    assert problem_of(server.predict([1], model_version="9"), 409)["title"] == "Version not served"


def test_a_body_over_its_limit_names_the_setting(served):
    server = served(max_body_bytes=100)
    body = b'{"instances": [[1]]}'
    assert server.client.post("/predict", data=body.ljust(100), content_type="application/json").status_code == 200
    answer = server.client.post("/predict", data=body.ljust(101), content_type="application/json")
    assert "MAX_BODY_BYTES" in problem_of(answer, 413)["detail"]


def test_a_chunked_body_over_its_limit_is_refused_when_it_gets_there(served):
    server = served(max_body_bytes=100)

    def post(body: bytes):
        return server.client.post(
            "/predict", input_stream=io.BytesIO(body), content_type="application/json",
            environ_overrides={"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"},
        )  # fmt: skip

    assert post(b'{"instances": [[1]]}'.ljust(100)).status_code == 200
    assert "MAX_BODY_BYTES" in problem_of(post(b'{"instances": [[1]]}'.ljust(101)), 413)["detail"]


def test_a_form_or_a_raw_picture_over_the_limit_is_refused_alike(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE), max_body_bytes=300)
    answer = server.client.post("/predict", data=bytes(301), content_type="image/png")
    assert "MAX_BODY_BYTES" in problem_of(answer, 413)["detail"]
    answer = server.client.post("/predict", data={"file": (io.BytesIO(bytes(301)), "x.png")})
    assert "MAX_BODY_BYTES" in problem_of(answer, 413)["detail"]


def test_a_connection_that_breaks_off_is_a_malformed_body(served):
    class Broken:
        def read(self, size=-1):
            raise OSError("connection reset")

    answer = served().client.post(
        "/predict", content_type="application/json", environ_overrides={"wsgi.input": Broken(), "CONTENT_LENGTH": "50"}
    )
    problem_of(answer, 400)


def test_a_body_that_ends_early_is_a_malformed_body(served):
    answer = served().client.post(
        "/predict",
        data=b'{"instances": [[1]]}',
        content_type="application/json",
        environ_overrides={"CONTENT_LENGTH": "50"},
    )
    problem_of(answer, 400)


def test_too_many_rows_name_the_setting(served):
    assert "MAX_INSTANCES" in problem_of(served(max_instances=2).predict([1], [2], [3]), 413)["detail"]


def test_more_rows_than_the_queue_can_ever_hold_name_the_setting(served):
    server = served(max_queue_size=2)
    answer = server.predict([1], [2], [3])
    assert "MAX_QUEUE_SIZE" in problem_of(answer, 413)["detail"]
    assert "Retry-After" not in answer.headers
    assert server.predict([1], [2]).status_code == 200


def test_too_many_parts_of_a_form_name_the_setting(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE), max_instances=2)
    answer = server.client.post("/predict", data={"file": [(io.BytesIO(b"x"), "x.png") for _ in range(5)]})
    assert "MAX_INSTANCES" in problem_of(answer, 413)["detail"]


def test_too_many_pixels_name_the_setting(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE), max_image_pixels=11)
    file = io.BytesIO()
    Image.new("RGB", (4, 3)).save(file, "PNG")
    answer = server.client.post("/predict", data=file.getvalue(), content_type="image/png")
    assert "MAX_IMAGE_PIXELS" in problem_of(answer, 413)["detail"]


def test_too_long_a_text_names_the_setting(served):
    server = served(ModelHandle.from_callable(upper, name="m", input=TextInput()), max_text_chars=3)
    assert "MAX_TEXT_CHARS" in problem_of(server.predict("abcd"), 413)["detail"]


def test_a_corrupt_picture_is_invalid_input(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE))
    answer = server.client.post("/predict", data=b"\x89PNG\r\n\x1a\n" + bytes(50), content_type="image/png")
    assert problem_of(answer, 422)["errors"][0]["loc"] == "body"


def test_a_full_queue_says_when_to_come_again(served):
    gate = Gate()
    server = served(gate, max_batch_size=1, max_queue_size=2)
    in_the_model = server.in_thread(lambda: server.predict([1]))
    assert gate.started.wait(GUARD_S)
    waiting = server.in_thread(lambda: server.predict([2]))
    deadline = time.monotonic() + GUARD_S
    while server.runtime.status().queued < 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    two = server.predict([3], [4])
    assert int(two.headers["Retry-After"]) >= 1
    assert "MAX_QUEUE_SIZE" in problem_of(two, 429)["detail"]
    gate.release.set()
    assert [in_the_model().status_code, waiting().status_code] == [200, 200]
    assert server.metric('inference_rejected_total{model="m",reason="queue_full",version="3"}') == 1


def test_a_row_on_which_the_model_fails_is_named_and_the_others_are_not(served):
    server = served(max_batch_size=8)
    body = problem_of(server.predict([1], [POISON], [2], [POISON]), 500)
    assert body["title"] == "Model failed"
    assert [fault["loc"] for fault in body["errors"]] == ["instances[1]", "instances[3]"]
    assert server.predict([1, 2]).json["predictions"] == [3.0]


@pytest.mark.parametrize("results", [[], [1, 2], 5, None, "ab", {"a": 1}], ids=repr)
def test_a_wrong_number_of_results_is_the_servers_fault(served, results):
    body = problem_of(served(lambda rows: results).predict([1]), 500)
    assert body["title"] == "Wrong output count"
    assert "output count" in body["detail"]
    assert body["errors"][0]["loc"] == "instances[0]"


def test_a_result_that_is_not_finite_is_named_and_counted(served):
    server = served()
    body = problem_of(server.predict([1], [NOT_FINITE]), 500)
    assert body["title"] == "Non-finite output"
    assert [fault["loc"] for fault in body["errors"]] == ["instances[1]"]
    assert server.predict([1]).status_code == 200
    assert server.metric('inference_errors_total{model="m",reason="non_finite",version="3"}') == 1


def test_a_result_that_json_cannot_hold_is_named_and_counted(served):
    server = served(lambda rows: [object() if row[0] else 1 for row in rows])
    body = problem_of(server.predict([0], [1]), 500)
    assert [fault["loc"] for fault in body["errors"]] == ["instances[1]"]
    assert server.metric('inference_errors_total{model="m",reason="model",version="3"}') == 1


def test_a_deadline_is_noticed_while_the_model_is_busy(served):
    gate = Gate()
    server = served(gate, max_batch_size=1)
    busy = server.in_thread(lambda: server.predict([1]))
    assert gate.started.wait(GUARD_S)
    started_at = time.monotonic()
    problem_of(server.predict([2], timeout_ms=30), 504)
    assert time.monotonic() - started_at < GUARD_S / 2
    gate.release.set()
    assert busy().status_code == 200
    assert server.predict([3]).status_code == 200
    assert gate.seen == [1, 3], "the row whose deadline had passed must not reach the model"
    assert server.metric('inference_rejected_total{model="m",reason="deadline",version="3"}') == 1


def test_what_comes_too_late_out_of_preparing_is_not_queued(served):
    gate = Gate()

    def slow(text: str) -> EncodedText:
        time.sleep(0.05)
        return EncodedText((1,))

    spec = TextInput(encode=slow)
    model = ModelHandle.from_callable(lambda rows: gate([[0]] * len(rows)), name="m", input=spec)
    server = served(model, max_batch_size=1, max_queue_size=1)
    inside = [server.in_thread(lambda: server.predict("a"))]
    assert gate.started.wait(GUARD_S)
    inside.append(server.in_thread(lambda: server.predict("a")))
    guard = time.monotonic() + GUARD_S
    while server.runtime.status().queued < 1 and time.monotonic() < guard:
        time.sleep(0.001)
    # The queue is full: who asks it gets 429.
    problem_of(server.predict("a", timeout_ms=20), 504)
    problem_of(server.predict("a"), 429)
    assert server.metric('inference_rejected_total{model="m",reason="deadline",version="1"}') == 1
    gate.release.set()
    assert [answer().status_code for answer in inside] == [200, 200]


def test_what_preparing_took_is_taken_off_the_time_in_the_queue(served):
    gate = Gate()

    def slow(text: str) -> EncodedText:
        time.sleep(0.8)
        return EncodedText((1,))

    spec = TextInput(encode=slow)
    server = served(ModelHandle.from_callable(lambda rows: gate([[0]] * len(rows)), name="m", input=spec))
    started_at = time.monotonic()
    problem_of(server.predict("a", timeout_ms=1000), 504)
    assert time.monotonic() - started_at < 1.7  # both in full would be 1.8
    gate.release.set()


def test_a_caller_cannot_wait_longer_than_the_server_allows(served):
    gate = Gate()
    server = served(gate, request_timeout_ms=30)
    problem_of(server.predict([1], timeout_ms=60_000), 504)
    gate.release.set()


@pytest.mark.parametrize(
    ("asked_ms", "allowed_ms", "told"),
    [(0.0001, 30_000, "0.0001"), (2.5, 30_000, "2.5"), (30, 20, "20"), (60_000, 30.25, "30.25")],
)
def test_the_limit_that_has_passed_is_told_as_it_was_set(served, asked_ms, allowed_ms, told):
    gate = Gate()
    server = served(gate, request_timeout_ms=allowed_ms)
    try:
        body = problem_of(server.predict([1], timeout_ms=asked_ms), 504)
    finally:
        gate.release.set()
    assert body["detail"].startswith(f"no answer within {told} ms (")


@pytest.mark.parametrize(("waited_s", "told"), [(1.2346, "1235"), (0.0104, "10"), (0.00064, "0.64"), (1e-7, "0.0001")])
def test_a_wait_whose_limit_is_not_known_is_told_as_it_was_measured(waited_s, told):
    assert str(DeadlineExceeded(waited_s)) == f"no answer within {told} ms"


def test_a_bug_of_ours_is_told_with_an_id_only(served, caplog):
    server = served()
    server.app.add_url_rule("/broken", view_func=lambda: {}["/srv/secret"])
    body = problem_of(server.client.get("/broken", headers={"X-Request-ID": "abc-1"}), 500)
    assert body["title"] == "Internal error"
    assert "abc-1" in caplog.text
    assert "KeyError" in caplog.text


MARK = "Zq7secret"


@pytest.mark.parametrize(
    "body",
    [
        {MARK * 500: 1},
        {f"{MARK}{i}": i for i in range(1000)},
        {"instances": [[MARK * 100_000]]},
        {"instances": [[MARK]] * 1000},
        {"instances": MARK * 1000},
        {"instances": [[1]], "model_version": MARK * 1000},
        {"instances": [[1]], "parameters": {MARK * 100: 1}},
        {"instances": [[1]], "parameters": {f"é{MARK}{i}" * 50: 1 for i in range(500)}},
        {"instances": [[1]], "timeout_ms": MARK},
        {"instances": [[1]], "text": MARK},
        {"text": MARK},
        MARK,
    ],
    ids=lambda body: repr(body)[:30],
)
def test_a_hostile_body_is_neither_echoed_nor_answered_at_length(served, body):
    answer = served().client.post("/predict", json=body)
    assert answer.status_code in (409, 413, 422)
    problem_of(answer, answer.status_code)
    assert MARK not in answer.text


@pytest.mark.parametrize("spec", [
    TabularInput(columns=("a", "b")), TabularInput(columns=("a", "b"), dtype="object"), TextInput(), SMALL_PICTURE,
    TensorInput(),
], ids=repr)  # fmt: skip
@pytest.mark.parametrize(
    "instance", [{MARK: 1}, {"a": 1, MARK: 2}, {"a": MARK, "b": {MARK: [MARK]}}, [MARK, [MARK]], {"b64": MARK + "!"}]
)
def test_nothing_of_the_callers_own_text_is_repeated(served, spec, instance):
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec))
    answer = server.predict(instance)
    problem_of(answer, 422)
    assert MARK not in answer.text


@pytest.mark.parametrize("where", ["content_type", "boundary", "encoding", "field", "filename", "version", "timeout"])
def test_nothing_of_the_callers_headers_and_forms_is_repeated(served, where):
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE))
    fields = {"field": {MARK: MARK}, "version": {"model_version": MARK}, "timeout": {"timeout_ms": MARK}}.get(where, {})
    upload = {"file": (io.BytesIO(MARK.encode()), MARK if where == "filename" else "x.png")}
    more = {
        "content_type": {"content_type": f"image-{MARK}/{MARK}"},
        "boundary": {"content_type": f"multipart/form-data; boundary={MARK}\u00e9"},
        "encoding": {"headers": {"Content-Encoding": MARK}},
    }.get(where, {})
    answer = server.client.post("/predict", data=MARK if "content_type" in more else {**upload, **fields}, **more)
    problem_of(answer, answer.status_code)
    assert MARK not in answer.text


def test_a_broken_body_is_not_echoed(served):
    answer = served().client.post("/predict", data=f'{{"{MARK}'.encode() * 1000, content_type="application/json")
    problem_of(answer, 400)
    assert MARK not in answer.text


def test_many_keys_are_refused_quickly(served):
    body = json.dumps({f"k{i}": i for i in range(300_000)}).encode()
    started_at = time.process_time()
    problem_of(served().client.post("/predict", data=body, content_type="application/json"), 422)
    assert time.process_time() - started_at < 1.0


def test_at_most_twenty_places_are_named(served):
    assert len(problem_of(served().predict(*[[True]] * 50), 422)["errors"]) == 20


def test_while_the_model_is_loading_the_answer_says_when_to_come_again(served):
    gate = Gate()
    server = served(ModelHandle.from_callable(gate, name="m", input=TabularInput(width=1)), warmup=True, ready=False)
    assert gate.started.wait(GUARD_S)
    answer = server.predict([1])
    assert int(answer.headers["Retry-After"]) >= 1
    assert problem_of(answer, 503)["title"] == "Not ready"
    gate.release.set()


def test_a_server_that_drains_before_its_model_is_there_says_that_it_stops(served):
    server = served(None, start=False, model_path="m.onnx")
    server.runtime.begin_drain()
    assert problem_of(server.predict([1]), 503)["title"] == "Stopping"


def test_a_draining_server_takes_no_new_work(served):
    server = served(sums)
    server.runtime.begin_drain()
    answer = server.predict([1])
    assert int(answer.headers["Retry-After"]) >= 1
    assert problem_of(answer, 503)["title"] == "Stopping"
    assert server.metric('inference_rejected_total{model="m",reason="draining",version="3"}') == 1


@pytest.mark.parametrize("fatal", [SystemExit("x"), RuntimeError("CUDA error: device-side assert triggered")])
def test_when_the_worker_dies_its_callers_and_later_ones_are_told(served, fatal):
    def die(rows):
        raise fatal

    server = served(die)
    for _ in range(2):
        answer = server.predict([1])
        assert int(answer.headers["Retry-After"]) >= 1
        assert problem_of(answer, 503)["title"] == "Worker dead"
    assert server.metric('inference_rejected_total{model="m",reason="worker_dead",version="3"}') == 2


def test_a_500_can_be_found_in_the_log_by_its_request_id(served, caplog):
    answer = served().predict([POISON])
    assert answer.status_code == 500
    assert any(
        record.name == "jitney.http" and answer.json["request_id"] in record.getMessage() for record in caplog.records
    )


def test_a_wrong_content_type_names_the_header_to_send(served):
    answer = served().client.post("/predict", data='{"instances": [[1]]}', content_type="text/plain")
    assert answer.status_code == 415
    assert "Content-Type application/json" in answer.json["detail"]
