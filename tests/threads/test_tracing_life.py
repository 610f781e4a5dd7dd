"""Recording spans begins after the fork, and its end keeps nobody waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from support.models import GUARD_S

from loaders.handle import ModelHandle
from service.batching.tickets import BatchInfo, FlushReason
from service.metrics.batches import BatchMetrics
from service.runtime import Runtime
from service.settings import Settings
from service.tracing.tracing import Tracing


class Held(SpanExporter):
    """An exporter whose other side does not answer until it is told to."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.release.wait(GUARD_S)
        return SpanExportResult.SUCCESS


def test_nothing_runs_before_the_start() -> None:
    made: list[InMemorySpanExporter] = []

    def make() -> InMemorySpanExporter:
        made.append(InMemorySpanExporter())
        return made[-1]

    before = threading.active_count()
    tracing = Tracing([make])
    runtime = Runtime(
        Settings(max_batch_latency_ms=0, warmup=False),
        BatchMetrics(CollectorRegistry()),
        ModelHandle.from_callable(list, name="m"),
        tracing,
    )
    assert (made, threading.active_count(), tracing.requests) == ([], before, None)
    runtime.start()
    runtime.start()
    assert len(made) == 1
    assert tracing.requests is not None
    tracing.requests.start_span("last").end()
    assert runtime.close(GUARD_S)
    assert [span.name for span in made[0].get_finished_spans()] == ["last"]
    assert threading.active_count() == before


def test_an_end_without_a_start_is_an_end() -> None:
    tracing = Tracing([InMemorySpanExporter])
    runtime = Runtime(Settings(), BatchMetrics(CollectorRegistry()), None, tracing)
    assert runtime.close()
    tracing.start()
    assert tracing.requests is None


def test_the_end_waits_no_longer_than_it_was_told(caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    tracing = Tracing([lambda: held])
    tracing.start()
    assert tracing.requests is not None
    tracing.requests.start_span("stuck").end()
    began = time.monotonic()
    try:
        assert not tracing.close(0.05)
        assert time.monotonic() - began < GUARD_S / 2
        assert "spans are lost" in caplog.text
    finally:
        held.release.set()


def test_a_batch_is_a_root_whatever_the_worker_thread_is_in() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing([lambda: exporter])
    tracing.start()
    assert tracing.requests is not None
    model = ModelHandle.from_callable(list, name="m")
    with tracing.requests.start_as_current_span("of the model itself"):
        tracing.batch(model, BatchInfo(1, 1, FlushReason.SIZE, 0.0, 0.1, 1, 1, 1), [tracing.origin()], [])
    assert tracing.close(GUARD_S)
    assert {span.name: span.parent for span in exporter.get_finished_spans()}["jitney.batch"] is None


def test_a_batch_is_linked_to_requests_of_other_processes_by_their_text() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing([lambda: exporter])
    tracing.start()
    assert tracing.requests is not None
    model = ModelHandle.from_callable(list, name="m")
    with tracing.requests.start_as_current_span("request") as request:
        origin = tracing.origin()
    text = tracing.origin_text(origin)
    assert text is not None
    no_text = ["", "00-zz-1-01", text.replace(text[3:35], "0" * 32), text[:-1], f" {text}"]
    tracing.batch(model, BatchInfo(1, 1, FlushReason.SIZE, 0.0, 0.1, 1, 1, 1), [text, None, text, *no_text], [])
    tracing.batch(model, BatchInfo(2, 1, FlushReason.SIZE, 0.0, 0.1, 1, 1, 1), no_text, [])
    assert tracing.origin_text(None) is None
    assert tracing.close(GUARD_S)
    (batch,) = [span for span in exporter.get_finished_spans() if span.name == "jitney.batch"]
    (link,) = batch.links
    context = request.get_span_context()
    assert (link.context.trace_id, link.context.span_id) == (context.trace_id, context.span_id)
    assert (link.context.is_remote, link.context.trace_flags.sampled) == (True, True)


WITHOUT_HOOKS = """
import loaders, service
handle = loaders.ModelHandle.from_callable(lambda rows: [0] * len(rows), name="m")
settings = service.Settings(max_batch_latency_ms=0, warmup=False, tracing="otel")
app = service.create_app(settings, model_handle=handle)
assert app.test_client().post("/predict", json={"instances": [[1]]}).status_code == 200
"""


def test_under_a_server_without_hooks_the_last_spans_are_sent_when_the_process_ends() -> None:
    environ = {**os.environ, "OTEL_TRACES_EXPORTER": "console"}
    command = [sys.executable, "-W", "error", "-c", WITHOUT_HOOKS]
    ended = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=60)
    assert '"name": "POST /predict"' in ended.stdout


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_process_records_and_sends_its_own_spans() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing([lambda: exporter])
    tracing.start()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert tracing.requests is not None
            tracing.requests.start_span("of the child").end()
            closed = tracing.close(GUARD_S)
            status = 0 if closed and [span.name for span in exporter.get_finished_spans()] == ["of the child"] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tracing.close(GUARD_S)
    assert exporter.get_finished_spans() == ()
