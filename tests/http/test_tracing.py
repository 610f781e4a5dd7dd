"""A request, its wait and its batch as spans, and nothing in them of the caller's own making but what it may choose."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from flask import Flask
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from served import GUARD_S, NOT_FINITE, POISON, Gate, Served, sums

from loaders.handle import ModelHandle
from service import Jitney, Settings
from service.settings import SettingsError
from service.tracing.tracers import of_our_own
from service.tracing.tracing import Tracing
from service.wsgi_environ import ARRIVED_AT

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FROM_CALLER = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(
    served: Callable[..., Served], exporter: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Served]:
    """Serve with tracing on; what is recorded reaches `exporter`, an installed one, when the server is closed."""
    installed = tmp_path / "kept-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kept\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[opentelemetry_traces_exporter]\nkept = kept_spans:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "kept_spans", SimpleNamespace(make=lambda: exporter))
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "kept")
    return lambda *args, **settings: served(*args, tracing="otel", **settings)


def recorded(server: Served, exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    """All spans of a server, which this ends, by their names."""
    server.close()
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def one(spans: dict[str, list[ReadableSpan]], name: str) -> ReadableSpan:
    (span,) = spans[name]
    return span


def test_a_prediction_is_a_span_with_its_wait_and_its_model_time_below_it(traced, exporter):
    server = traced()
    answer = server.client.post("/predict", json={"instances": [[1, 2], [3, 4]]}, headers={"X-Request-ID": "mine"})
    assert answer.status_code == 200
    spans = recorded(server, exporter)
    request, queue, model = (one(spans, name) for name in ("POST /predict", "jitney.queue", "jitney.model"))
    assert (request.kind, request.parent, request.status.status_code) == (SpanKind.SERVER, None, StatusCode.UNSET)
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "http.route": "/predict",
        "http.response.status_code": 200,
        "client.address": "127.0.0.1",
        "jitney.request_id": "mine",
        "jitney.rows": 2,
        "jitney.batches": 1,
        "jitney.model.name": "m",
        "jitney.model.version": "3",
    }
    assert queue.parent == model.parent == request.context
    assert request.start_time <= queue.start_time <= queue.end_time <= model.start_time <= model.end_time
    assert model.end_time <= request.end_time + 1_000_000  # two clocks


def test_a_batch_is_a_trace_of_its_own_linked_to_all_the_requests_that_it_served(traced, exporter):
    gate = Gate()
    server = traced(gate, max_batch_size=4)
    first = server.in_thread(lambda: server.predict([0]))
    assert gate.started.wait(GUARD_S)
    others = []
    for number in (1, 2):
        others.append(server.in_thread(lambda number=number: server.predict([number])))
        server.wait_queued(number)
    gate.release.set()
    assert [wait().status_code for wait in (first, *others)] == [200, 200, 200]
    spans = recorded(server, exporter)
    alone, shared = sorted(spans["jitney.batch"], key=lambda span: span.attributes["jitney.batch.size"])
    assert dict(shared.attributes) == {
        "jitney.batch.id": 2,
        "jitney.batch.size": 2,
        "jitney.batch.reason": "latency",
        "jitney.batch.retries": 0,
        "jitney.model.name": "m",
        "jitney.model.version": "3",
    }
    requests = {span.context.span_id: span.context.trace_id for span in spans["POST /predict"]}
    linked = [{link.context.span_id: link.context.trace_id for link in batch.links} for batch in (alone, shared)]
    assert [len(contexts) for contexts in linked] == [1, 2]
    assert linked[0] | linked[1] == requests
    assert shared.parent is None
    assert shared.context.trace_id not in requests.values()
    of_two = {span.parent.span_id for span in spans["jitney.model"] if span.attributes["jitney.batch.id"] == 2}
    assert of_two == set(linked[1])


def test_a_request_with_many_rows_is_linked_once_and_shows_each_of_its_batches(traced, exporter):
    server = traced(max_batch_size=2)
    assert server.predict([1], [2], [3], [4]).status_code == 200
    spans = recorded(server, exporter)
    assert [len(batch.links) for batch in spans["jitney.batch"]] == [1, 1]
    assert [span.attributes["jitney.batch.id"] for span in spans["jitney.model"]] == [1, 2]
    assert one(spans, "POST /predict").attributes["jitney.batches"] == 2


def test_of_very_many_batches_the_first_are_shown(traced, exporter):
    server = traced(max_batch_size=1)
    assert server.predict(*([1] for _ in range(40))).status_code == 200
    spans = recorded(server, exporter)
    assert [span.attributes["jitney.batch.id"] for span in spans["jitney.model"]] == list(range(1, 33))
    assert one(spans, "POST /predict").attributes["jitney.batches"] == 40


def test_the_span_of_a_caller_becomes_the_parent(traced, exporter):
    server = traced()
    server.client.post("/predict", json={"instances": [[1]]}, headers=FROM_CALLER)
    request = one(recorded(server, exporter), "POST /predict")
    assert (f"{request.context.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, CALLER)
    assert request.parent.is_remote
    assert request.context.trace_state.get("vendor") == "1"


@pytest.mark.parametrize("header", ["", "00-zz-1-01", "00-" + "0" * 32 + "-" + CALLER + "-01", "ff" * 4000])
def test_a_parent_that_is_none_begins_a_new_trace(traced, exporter, header):
    server = traced()
    assert server.client.post("/predict", json={"instances": [[1]]}, headers={"traceparent": header}).status_code == 200
    assert one(recorded(server, exporter), "POST /predict").parent is None


def test_what_a_caller_does_not_want_recorded_is_not_and_its_batch_neither(traced, exporter):
    server = traced()
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-00"}
    assert server.client.post("/predict", json={"instances": [[1]]}, headers=headers).status_code == 200
    assert recorded(server, exporter) == {}


def test_a_batch_is_recorded_for_a_sampled_request_whatever_the_sampler_would_say(traced, exporter, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    server = traced()
    server.predict([1])
    server.client.post("/predict", json={"instances": [[2]]}, headers=FROM_CALLER)
    spans = recorded(server, exporter)
    assert {name: len(found) for name, found in spans.items()} == {
        "POST /predict": 1,
        "jitney.queue": 1,
        "jitney.model": 1,
        "jitney.batch": 1,
    }


def test_a_model_that_fails_is_told_without_what_it_says(traced, exporter):
    server = traced()
    assert server.predict([POISON, 0]).status_code == 500
    spans = recorded(server, exporter)
    request, batch = one(spans, "POST /predict"), one(spans, "jitney.batch")
    assert request.status.status_code is batch.status.status_code is StatusCode.ERROR
    assert (request.status.description, batch.status.description) == (None, None)
    assert (request.attributes["error.type"], request.attributes["jitney.problem"]) == ("500", "Model failed")
    assert (batch.attributes["error.type"], batch.attributes["jitney.batch.failed_rows"]) == ("model", 1)
    assert [link.context for link in batch.links] == [request.context]
    assert not any(span.events for found in spans.values() for span in found)


def test_a_batch_tells_how_often_it_was_split(traced, exporter):
    server = traced(max_batch_size=4)
    assert server.predict([1, 0], [POISON, 0], [2, 0], [3, 0]).status_code == 500
    batch = one(recorded(server, exporter), "jitney.batch")
    assert batch.attributes["jitney.batch.retries"] >= 2


def failed(span: ReadableSpan) -> str | None:
    """What a span says that it failed by; None where it did not."""
    assert (span.status.status_code is StatusCode.ERROR) == ("error.type" in span.attributes)
    assert span.status.description is None
    return span.attributes.get("error.type")


def test_a_request_that_the_model_failed_on_shows_its_wait_and_the_batch_that_failed(traced, exporter):
    server = traced(max_batch_size=1)
    assert server.predict([1], [POISON]).status_code == 500
    spans = recorded(server, exporter)
    request, queue = one(spans, "POST /predict"), one(spans, "jitney.queue")
    well, bad = sorted(spans["jitney.model"], key=lambda span: span.attributes["jitney.batch.id"])
    assert (failed(queue), failed(well), failed(bad)) == (None, None, "model")
    assert queue.parent == well.parent == bad.parent == request.context
    assert (request.attributes["jitney.rows"], request.attributes["jitney.batches"]) == (2, 2)
    assert queue.end_time <= bad.start_time <= bad.end_time <= request.end_time + 1_000_000  # two clocks


def test_a_request_that_gives_up_in_the_queue_shows_its_wait_alone(traced, exporter):
    gate = Gate()
    server = traced(gate, max_batch_size=1)
    first = server.in_thread(lambda: server.predict([0]))
    assert gate.started.wait(GUARD_S)
    assert (
        server.client.post("/predict", json={"instances": [[1]], "timeout_ms": 50}, headers=FROM_CALLER).status_code
        == 504
    )
    gate.release.set()
    assert first().status_code == 200
    spans = [span for found in recorded(server, exporter).values() for span in found]
    late = {span.name: span for span in spans if f"{span.context.trace_id:032x}" == TRACE}
    assert late.keys() == {"POST /predict", "jitney.queue"}
    queue = late["jitney.queue"]
    assert failed(queue) == "DeadlineExceeded"
    assert queue.end_time - queue.start_time >= 45_000_000
    assert (late["POST /predict"].attributes["jitney.rows"], late["POST /predict"].attributes["jitney.batches"]) == (
        1,
        0,
    )


def test_a_request_that_gives_up_while_its_batch_runs_shows_that_it_was_in_the_model(traced, exporter):
    gate = Gate()
    server = traced(gate, max_batch_size=1)
    late = server.in_thread(lambda: server.predict([0], timeout_ms=300))
    assert gate.started.wait(GUARD_S)
    assert late().status_code == 504
    gate.release.set()
    spans = recorded(server, exporter)
    queue, model = one(spans, "jitney.queue"), one(spans, "jitney.model")
    assert (failed(queue), failed(model)) == (None, "DeadlineExceeded")
    assert "jitney.batch.id" not in model.attributes
    assert queue.end_time == model.start_time < model.end_time
    assert one(spans, "jitney.batch").attributes["jitney.batch.size"] == 1


def test_what_is_not_let_in_has_no_spans_below_it(traced, exporter):
    gate = Gate()
    server = traced(gate, max_batch_size=1, max_queue_size=1)
    inside = [server.in_thread(lambda: server.predict([0]))]
    assert gate.started.wait(GUARD_S)
    inside.append(server.in_thread(lambda: server.predict([1])))
    server.wait_queued(1)
    assert server.client.post("/predict", json={"instances": [[2]]}, headers=FROM_CALLER).status_code == 429
    gate.release.set()
    assert [wait().status_code for wait in inside] == [200, 200]
    spans = [span for found in recorded(server, exporter).values() for span in found]
    assert [span.name for span in spans if f"{span.context.trace_id:032x}" == TRACE] == ["POST /predict"]


def test_a_result_that_json_cannot_hold_came_through_the_model(traced, exporter):
    server = traced()
    assert server.predict([NOT_FINITE, 0]).status_code == 500
    spans = recorded(server, exporter)
    assert failed(one(spans, "jitney.queue")) is None
    assert one(spans, "jitney.model").parent == one(spans, "POST /predict").context


@pytest.mark.parametrize(
    ("method", "path", "name", "status"),
    [
        ("POST", "/models/none/predict", "POST /models/<name>/predict", 404),
        ("GET", "/marker", "GET", 404),
        ("GET", "/v1/models/none", "GET /v1/models/<name>", 404),
        ("GET", "/predict", "GET", 405),
        ("MARKER", "/predict", "HTTP", 405),
    ],
)
def test_a_refusal_is_no_fault_of_ours_and_named_after_the_rule_alone(traced, exporter, method, path, name, status):
    server = traced()
    assert server.client.open(path, method=method, json={"instances": [[1]]}).status_code == status
    spans = recorded(server, exporter)
    request = one(spans, name)
    assert request.status.status_code is StatusCode.UNSET
    assert request.attributes["http.response.status_code"] == status
    assert "error.type" not in request.attributes


def test_nothing_of_what_a_caller_sends_stands_in_a_span(traced, exporter):
    server = traced()
    server.client.post("/models/marker/predict?marker=1", json={"instances": [["marker"]]}, headers={"Host": "marker"})
    server.client.post("/predict", json={"instances": ["marker"]}, headers={"X-Request-ID": "a marker"})
    server.client.open("/predict", method="MARKER")
    server.close()
    text = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert text.count('"name"') >= 3
    assert "marker" not in text.lower()


def test_what_is_refused_before_its_view_is_a_span_too(traced, exporter):
    server = traced(api_keys=("key-of-somebody",))
    assert server.predict([1]).status_code == 401
    assert one(recorded(server, exporter), "POST /predict").attributes["http.response.status_code"] == 401


def test_the_request_that_starts_the_service_is_recorded(traced, exporter):
    server = traced(start=False)
    assert server.predict([1]).status_code == 200
    assert {"POST /predict", "jitney.queue", "jitney.model", "jitney.batch"} == set(recorded(server, exporter))


def test_a_span_begins_when_the_request_came_and_not_when_it_had_a_thread(traced, exporter):
    server = traced()
    came_at = time.monotonic() - 2.0
    server.client.post("/predict", json={"instances": [[1]]}, environ_overrides={ARRIVED_AT: came_at})
    request = one(recorded(server, exporter), "POST /predict")
    assert 2.0 <= (request.end_time - request.start_time) / 1e9 < 2.0 + GUARD_S


def test_probes_are_no_spans(traced, exporter):
    server = traced()
    for path in ("/healthz", "/livez", "/metrics", "/status.json", "/v2/health/live", "/v2/health/ready"):
        assert server.client.get(path).status_code == 200
    assert recorded(server, exporter) == {}


def test_a_request_leaves_its_thread_without_a_span(traced):
    server = traced()
    server.predict([1])
    server.client.get("/nothing")
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_span_that_somebody_else_opened_stands_for_the_request(traced, exporter):
    server = traced()
    mine = TracerProvider(shutdown_on_exit=False)
    mine.add_span_processor(SimpleSpanProcessor(exporter))
    with mine.get_tracer("wsgi").start_as_current_span("outer") as outer:
        assert server.predict([1]).status_code == 200
    spans = recorded(server, exporter)
    assert sorted(spans) == ["jitney.batch", "jitney.model", "jitney.queue", "outer"]
    assert one(spans, "jitney.queue").parent == outer.get_span_context()
    assert [link.context for link in one(spans, "jitney.batch").links] == [outer.get_span_context()]


@pytest.fixture
def program(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    """The program has set a tracer provider of its own, as it can do once."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield provider
    provider.shutdown()


def test_the_provider_of_the_program_is_used_and_left_running(served, exporter, program, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "unheard-of")  # nobody looks at it
    server = served(tracing="otel")
    server.predict([1])
    assert {"POST /predict", "jitney.batch"} <= set(recorded(server, exporter))
    program.get_tracer("program").start_span("later").end()
    assert "later" in {span.name for span in exporter.get_finished_spans()}


def test_an_error_that_an_app_lets_through_is_told_by_its_name(traced, exporter, monkeypatch):
    app = Flask("yours")
    app.testing = True
    monkeypatch.setenv("MAX_BATCH_LATENCY_MS", "0")
    Jitney(app, Settings(tracing="otel"), model_handle=ModelHandle.from_callable(sums, name="sums"))

    @app.get("/broken/<name>")
    def broken(name: str) -> str:
        raise KeyError(name)

    with pytest.raises(KeyError):
        app.test_client().get("/broken/marker")
    request = one(recorded(Served(app), exporter), "GET /broken/<name>")
    assert (request.attributes["error.type"], request.status.status_code) == ("KeyError", StatusCode.ERROR)
    assert "marker" not in request.to_json()
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("variable", [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_the_standard_variables_switch_it_off(served, monkeypatch, variable):
    monkeypatch.setenv(*variable)
    server = served(tracing="otel")
    assert server.runtime.tracing is None
    assert server.predict([1]).status_code == 200


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("OTEL_TRACES_EXPORTER", "carrier-pigeon", "carrier-pigeon is not installed"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "must be one of http/protobuf, grpc"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "pip install opentelemetry-exporter-otlp-proto-grpc"),
    ],
)
def test_an_exporter_that_is_not_there_stops_the_start(served, monkeypatch, variable, value, told):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=told):
        served(tracing="otel")


def test_after_the_end_nothing_is_recorded_and_it_does_not_begin_again(exporter):
    tracing = Tracing([lambda: exporter])
    tracing.start()
    assert tracing.requests is not None
    assert tracing.close()
    tracing.start()
    assert tracing.requests is None
    assert of_our_own([exporter]).close(GUARD_S)
