"""What makes spans and takes them away: the program's own tracer provider where it has set one, else one of ours."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

_log = logging.getLogger("jitney.tracing")

_SCOPE = "jitney"


@dataclass(frozen=True, slots=True)
class Tracers:
    """`requests`: asks the sampler. `batches`: does not, where that can be had: a batch is recorded for its requests,
    which have been sampled. `shut_down`: sends what is left and ends the threads, however long that takes.
    """

    requests: trace.Tracer
    batches: trace.Tracer
    shut_down: Callable[[], None] = lambda: None

    def close(self, timeout_s: float) -> bool:
        """Shut down; False when that is not done within `timeout_s` seconds, and what was left may be lost."""
        # The SDK has no bound of its own here: it waits for an export, which may go on trying.
        closing = threading.Thread(target=self.shut_down, name="jitney-tracing-close", daemon=True)
        closing.start()
        closing.join(timeout_s)
        if closing.is_alive():
            _log.warning("spans are lost: nobody took them within %.1f s of the end", timeout_s)
        return not closing.is_alive()


def is_set_by_program() -> bool:
    """Whether the program has set a tracer provider of its own, as `opentelemetry-instrument` does."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def of_program() -> Tracers:
    """Tracers of the provider that the program has set, which is the program's to shut down."""
    tracer = trace.get_tracer(_SCOPE)
    return Tracers(tracer, tracer)


def of_our_own(exporters: Iterable[SpanExporter]) -> Tracers:
    """Tracers of a new provider that sends its spans to `exporters`, on a thread for each.

    The sampler, the limits, the resource and the pace are those of the standard variables. Nobody else sees the
    provider: what a library in this process traces is the program's business.
    """
    processors = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]
    for exporter in exporters:
        processors.add_span_processor(BatchSpanProcessor(exporter))
    resource = _resource()
    asking, recording = (
        TracerProvider(sampler, resource, shutdown_on_exit=False, active_span_processor=processors)
        for sampler in (None, ALWAYS_ON)
    )
    return Tracers(asking.get_tracer(_SCOPE), recording.get_tracer(_SCOPE), processors.shutdown)


def _resource() -> Resource:
    """The resource of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES; a service without a name gets ours."""
    named = Resource.create()
    if not str(named.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return named
    return named.merge(Resource({SERVICE_NAME: "jitney"}))
