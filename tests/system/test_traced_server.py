"""Spans of a real server, as a collector gets them from each of its worker processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.callers import Callers
from support.collector import Collector, attributes, collecting, wait_for

from tests.system.conftest import Server, Start

pytestmark = pytest.mark.system

CALLERS = {1.0: ("1" * 32, "a" * 16), 2.0: ("2" * 32, "b" * 16), 3.0: ("3" * 32, "c" * 16)}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def test_callers_whose_rows_shared_a_batch_find_it_from_their_own_traces(
    start: Start, collector: Collector, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    server = start(app="gated:app", GATE=gate, WARMUP="false", **traced(collector))
    gate.touch()
    callers = Callers()
    callers.start(lambda: server.predict([0.0]).status_code)
    server.wait_until(server.busy)
    for position, number in enumerate(CALLERS, start=1):
        callers.start(lambda number=number: ask(server, number))
        server.wait_until(lambda position=position: server.metric("inference_queue_depth") == position)
    gate.unlink()
    assert callers.finish() == [200] * 4
    assert server.stop() == 0

    (batch,) = [span for span in collector.spans("jitney.batch") if attributes(span)["jitney.batch.size"] == 3]
    requests_of = {span.trace_id.hex(): span for span in collector.spans("POST /predict")}
    for trace, caller in CALLERS.values():
        request = requests_of[trace]
        assert request.kind == Span.SPAN_KIND_SERVER
        assert request.parent_span_id.hex() == caller
        below = [span for span in collector.spans() if span.parent_span_id == request.span_id]
        assert sorted(span.name for span in below) == ["jitney.model", "jitney.queue"]
        (model,) = (span for span in below if span.name == "jitney.model")
        assert attributes(model)["jitney.batch.id"] == attributes(batch)["jitney.batch.id"]
        assert all(span.trace_id == request.trace_id for span in below)
    assert {(link.trace_id.hex(), link.span_id) for link in batch.links} == {
        (trace, requests_of[trace].span_id) for trace, _ in CALLERS.values()
    }
    assert batch.parent_span_id == b""
    assert collector.services() == {"jitney"}


def test_each_worker_process_sends_its_own_spans(start: Start, collector: Collector) -> None:
    server = start(WEB_WORKERS=2, OTEL_SERVICE_NAME="rides", OTEL_BSP_SCHEDULE_DELAY=50, **traced(collector))
    for number in range(20):
        assert server.predict([0, number]).status_code == 200
    assert len(wait_for(collector, "jitney.batch", 20)) == 20  # while it runs, and not only at its end
    assert server.stop() == 0
    assert collector.services() == {"rides"}
    assert len({span.trace_id for span in collector.spans("POST /predict")}) == 20


def test_the_owner_of_a_shared_model_sends_batches_linked_to_the_requests_of_its_front_ends(
    start: Start, collector: Collector, tmp_path: Path
) -> None:
    never = tmp_path / "gate"
    server = start(app="gated:app", GATE=never, WEB_WORKERS=2, MODEL_SHARING="one", **traced(collector))
    server.wait_until(lambda: server.text().count("can be asked for at its owner") == 2)
    assert [ask(server, number) for number in CALLERS] == [200] * 3
    assert server.stop() == 0
    requests_of = {span.trace_id.hex(): span.span_id for span in collector.spans("POST /predict")}
    linked = [{(link.trace_id.hex(), link.span_id) for link in span.links} for span in collector.spans("jitney.batch")]
    assert sorted(linked, key=str) == sorted(({(trace, requests_of[trace])} for trace, _ in CALLERS.values()), key=str)
    assert all(span.parent_span_id == b"" for span in collector.spans("jitney.batch"))
    assert len(collector.spans("jitney.model")) == 3


def test_a_collector_that_does_not_answer_holds_up_neither_requests_nor_the_end(
    start: Start, collector: Collector
) -> None:
    collector.answers.clear()
    server = start(OTEL_BSP_SCHEDULE_DELAY=10, **traced(collector))
    assert server.predict([0, 7]).status_code == 200
    assert collector.asked.wait(10)
    assert server.predict([0, 8]).json()["predictions"] == [8]
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 4
    assert "spans are lost" in server.text()


def traced(collector: Collector) -> dict[str, str]:
    return {"TRACING": "otel", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}


def ask(server: Server, number: float) -> int:
    trace, caller = CALLERS[number]
    headers = {"traceparent": f"00-{trace}-{caller}-01"}
    body = {"instances": [[number]]}
    return requests.post(server.url + "/predict", json=body, headers=headers, timeout=30).status_code


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OTEL_BSP_SCHEDULE_DELAY": "-1"}, "schedule_delay_millis must be positive"),
        ({"OTEL_SPAN_LINK_COUNT_LIMIT": "many"}, "OTEL_SPAN_LINK_COUNT_LIMIT must be a non-negative integer"),
        ({"OTEL_PROPAGATORS": "bogus"}, "OTEL_PROPAGATORS: Propagator bogus not found"),
        ({"OTEL_TRACES_EXPORTER": "bogus"}, "OTEL_TRACES_EXPORTER='bogus'"),
    ],
)
def test_a_variable_that_tracing_cannot_begin_with_ends_the_start_with_a_reason(start: Start, variables, told) -> None:
    server = start(wait=False, TRACING="otel", **variables)
    assert server.process.wait(60) == 3
    assert "wrong settings: " in server.text()
    assert told in server.text()
    assert "Traceback" not in server.text()
