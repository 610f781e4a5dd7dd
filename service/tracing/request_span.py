"""The span of a request, and those of the parts of its time that it spent with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.semconv.attributes.client_attributes import CLIENT_ADDRESS
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.http_attributes import (
    HTTP_REQUEST_METHOD,
    HTTP_RESPONSE_STATUS_CODE,
    HTTP_ROUTE,
)
from opentelemetry.semconv.attributes.url_attributes import URL_SCHEME
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from service.batching.course import Course
from service.batching.tickets import BatchInfo
from service.tracing.batch_span import batch_attributes
from service.tracing.clock import calendar
from service.wsgi_environ import ARRIVED_AT

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})

# A request of a thousand rows may be in as many batches; the first ones show how it went.
MAX_BATCHES = 32

MODEL = "jitney.model"


class _Headers(Getter[Mapping[str, Any]]):
    """Reads the headers of a WSGI environ."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        """The header of that name, None where there is none."""
        value = carrier.get("HTTP_" + key.upper().replace("-", "_"))
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        """The names of all headers."""
        return [name[5:].lower().replace("_", "-") for name in carrier if name.startswith("HTTP_")]


_HEADERS = _Headers()


def caller_context(environ: Mapping[str, Any]) -> Context:
    """What the caller's headers tell of its own trace; OTEL_PROPAGATORS says which: `traceparent` by default."""
    return propagate.extract(environ, Context(), _HEADERS)


def begin_request(tracer: Tracer, environ: Mapping[str, Any], route: str | None, parent: Context) -> Span:
    """The span of a request, begun when the request came, or now where the server does not tell when that was.

    route: the URL rule, None where none fits. Nothing else of the path is recorded, as callers choose what it holds.
    """
    method = environ["REQUEST_METHOD"]
    known = method if method in _METHODS else "_OTHER"
    attributes: dict[str, AttributeValue] = {HTTP_REQUEST_METHOD: known, URL_SCHEME: environ["wsgi.url_scheme"]}
    if route is not None:
        attributes[HTTP_ROUTE] = route
    if environ.get("REMOTE_ADDR"):
        attributes[CLIENT_ADDRESS] = environ["REMOTE_ADDR"]
    shown = "HTTP" if known == "_OTHER" else known
    arrived_at: float | None = environ.get(ARRIVED_AT)
    return tracer.start_span(
        shown if route is None else f"{shown} {route}",
        parent,
        SpanKind.SERVER,
        attributes,
        start_time=None if arrived_at is None else calendar()(arrived_at),
    )


def end_request(span: Span, status: int, attributes: Mapping[str, AttributeValue]) -> None:
    """The request has been answered with this status; `attributes` tell more of it."""
    span.set_attributes({HTTP_RESPONSE_STATUS_CODE: status, **attributes})
    if status >= 500:
        span.set_attribute(ERROR_TYPE, str(status))
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def fail_request(span: Span, error: BaseException | None) -> None:
    """The request ended without an answer of the app; of the error its name is recorded, and nothing that it holds."""
    if error is not None:
        span.set_attribute(ERROR_TYPE, type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR))
    span.end()


def record_phases(tracer: Tracer, request: Span, course: Course) -> None:
    """Spans below the request's, as far as it came in the batcher: its wait until the last of its rows was in a batch,
    and each batch's model time. Nothing where it was not let in. What it ended in is marked as failed.
    """
    if course.enqueued_at is None:
        return
    at, parent = calendar(), trace.set_span_in_context(request, Context())

    def record(name: str, began_at: float, ended_at: float, *, info: BatchInfo | None = None, fails: bool) -> None:
        attributes = None if info is None else batch_attributes(info)
        span = tracer.start_span(name, parent, attributes=attributes, start_time=at(began_at))
        if fails and course.failure is not None:
            span.set_attribute(ERROR_TYPE, course.failure)
            span.set_status(Status(StatusCode.ERROR))
        span.end(at(ended_at))

    request.set_attributes({"jitney.rows": course.rows, "jitney.batches": len(course.batches)})
    record("jitney.queue", course.enqueued_at, course.queue_ended_at, fails=not (course.failed or course.is_running))
    for info in course.batches[:MAX_BATCHES]:
        record(MODEL, info.started_at, info.started_at + info.model_s, info=info, fails=info.batch_id in course.failed)
    if course.is_running:
        record(MODEL, course.queue_ended_at, course.left_at, fails=True)
