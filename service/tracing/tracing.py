"""`Tracing`: what the service records of its requests and batches, from the start of a process to its end."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.trace import SpanContext, Tracer

from loaders.handle import ModelHandle
from service.batching.tickets import BatchInfo
from service.errors import PredictionFailed
from service.settings import SettingsError
from service.tracing.batch_span import record_batch
from service.tracing.exporters import MakeExporter
from service.tracing.origin import written
from service.tracing.tracers import Tracers, is_set_by_program, of_our_own, of_program

# How long the last spans of a process may take on their way, seconds: less than an idle server may take to stop.
FLUSH_S = 1.5


class Tracing:
    """Begins with `start`, which makes threads and so comes after a fork, and ends with `close`, for good.

    makers: of the exporters; not used where the program has set a tracer provider of its own.

    *Thread:* any thread may call any method.
    """

    def __init__(self, makers: Sequence[MakeExporter]) -> None:
        self._makers = makers
        self._lock = threading.Lock()  # guards _tracers and _closed
        self._tracers: Tracers | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to record; does nothing when that was done before, or after `close`. Raises SettingsError."""
        with self._lock:
            if self._tracers is not None or self._closed:
                return
            if is_set_by_program():
                self._tracers = of_program()
            else:
                self._tracers = self._own_tracers()
                atexit.register(self.close)  # under a server that has no hook for its end

    def _own_tracers(self) -> Tracers:
        try:
            return of_our_own([make() for make in self._makers])
        except Exception as error:  # whatever an exporter makes of its variables
            raise SettingsError(
                f"TRACING=otel cannot begin with the variables OTEL_... that are set: {error}"
            ) from error

    def close(self, timeout_s: float = FLUSH_S) -> bool:
        """Send what is left and record no more; False when that was not done within `timeout_s` seconds."""
        with self._lock:
            tracers, self._tracers, self._closed = self._tracers, None, True
        atexit.unregister(self.close)
        return tracers is None or tracers.close(timeout_s)

    @property
    def requests(self) -> Tracer | None:
        """What makes the spans of requests; None before the start and after the end."""
        tracers = self._tracers
        return None if tracers is None else tracers.requests

    def origin(self) -> SpanContext | None:
        """The span that this thread is in, for `batch`; None where it is not recorded."""
        context = trace.get_current_span().get_span_context()
        return context if context.trace_flags.sampled else None

    def origin_text(self, origin: object) -> str | None:
        """`origin` for the process that owns the model, whose `batch` takes it too."""
        return written(origin) if isinstance(origin, SpanContext) else None

    def batch(
        self,
        model: ModelHandle,
        info: BatchInfo,
        origins: Sequence[object | None],
        errors: Sequence[PredictionFailed],
    ) -> None:
        """Record a batch that has run. origins: what `origin` gave for the request of each row, or its text."""
        tracers = self._tracers
        if tracers is not None:
            record_batch(tracers.batches, model, info, origins, errors)
