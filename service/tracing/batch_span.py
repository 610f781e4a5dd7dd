"""The span of a batch, which belongs to no caller alone."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.trace import Link, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from loaders.handle import ModelHandle
from service.batching.tickets import BatchInfo
from service.errors import PredictionFailed
from service.tracing.clock import calendar
from service.tracing.origin import restored


def batch_attributes(info: BatchInfo) -> dict[str, AttributeValue]:
    """What is told of a batch, on its own span and on those of its requests."""
    return {
        "jitney.batch.id": info.batch_id,
        "jitney.batch.size": info.size,
        "jitney.batch.reason": info.reason.value,
        "jitney.batch.retries": info.runs - 1,
    }


def model_attributes(model: ModelHandle) -> dict[str, AttributeValue]:
    """Which model it was."""
    return {"jitney.model.name": model.name, "jitney.model.version": model.version}


def record_batch(
    tracer: Tracer,
    model: ModelHandle,
    info: BatchInfo,
    origins: Sequence[object | None],
    errors: Sequence[PredictionFailed],
) -> None:
    """A span of a trace of its own, linked to the span of each request that it served and that is recorded.

    Nothing where there is no such request. origins: for each row the context of its request's span, or its text where
    that is of another process; None where it is not recorded. Of errors the words of the metrics are told: what a model
    says of a row may hold the row.
    """
    contexts = filter(None, map(restored, origins))
    served = {(one.trace_id, one.span_id): one for one in contexts}
    if not served:
        return
    at = calendar()
    attributes = batch_attributes(info) | model_attributes(model)
    if info.padding_tokens:
        attributes["jitney.batch.padding_tokens"] = info.padding_tokens
    links = [Link(one) for one in served.values()]
    # An empty context makes it a root, whatever the worker thread is in the middle of.
    span = tracer.start_span(
        "jitney.batch", Context(), attributes=attributes, links=links, start_time=at(info.started_at)
    )
    if errors:
        span.set_attribute("jitney.batch.failed_rows", len(errors))
        span.set_attribute("error.type", errors[0].reason)
        span.set_status(Status(StatusCode.ERROR))
    span.end(at(info.started_at + info.model_s))
