"""A collector of spans: what OTLP brings over HTTP, decoded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from support.models import GUARD_S


class Collector:
    """Keeps every span that was sent, with its service's name; `answers`, when cleared, lets nobody have an answer."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()
        self._lock = threading.Lock()  # guards _spans
        self._spans: list[tuple[str, Span]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="collector")

    def start(self) -> None:
        """Listen; what comes earlier waits."""
        self._thread.start()

    def close(self) -> None:
        """Answer everybody, and listen no more."""
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(GUARD_S)

    def spans(self, name: str | None = None) -> list[Span]:
        """Those of that name, or all, as they came."""
        with self._lock:
            return [span for _, span in self._spans if name in (None, span.name)]

    def services(self) -> set[str]:
        """The names of the services that sent any."""
        with self._lock:
            return {service for service, _ in self._spans}

    def _take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._lock:
            for resource in request.resource_spans:
                service = attributes(resource.resource)["service.name"]
                self._spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked.set()
                collector.answers.wait(GUARD_S)
                collector._take(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        return Handler


def attributes(holder: Any) -> dict[str, Any]:
    """The attributes of a span or a resource as Python has them."""
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in holder.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens as long as the block lasts."""
    collector = Collector()
    collector.start()
    try:
        yield collector
    finally:
        collector.close()


def wait_for(collector: Collector, name: str, count: int) -> list[Span]:
    """So many spans of that name, once they are there."""
    give_up_at = time.monotonic() + GUARD_S
    while len(found := collector.spans(name)) < count:
        assert time.monotonic() < give_up_at, [span.name for span in collector.spans()]
        time.sleep(0.01)
    return found
