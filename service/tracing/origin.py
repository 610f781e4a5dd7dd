"""The span that a request comes from, as text that another process can link a batch to.

*Source:* the header `traceparent` of W3C Trace Context, which has the same parts. Its `tracestate` stays behind: a link
is found without it.
"""

from __future__ import annotations

import re

from opentelemetry.trace import SpanContext, TraceFlags

_WRITTEN = re.compile(r"00-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")


def written(origin: SpanContext) -> str:
    """The text for `restored`."""
    return f"00-{origin.trace_id:032x}-{origin.span_id:016x}-{origin.trace_flags:02x}"


def restored(origin: object) -> SpanContext | None:
    """What names a span of this process, as it is, or of another one, from its text; None for anything else."""
    if isinstance(origin, SpanContext):
        return origin
    found = _WRITTEN.fullmatch(origin) if isinstance(origin, str) else None
    if found is None:
        return None
    trace, span, flags = (int(part, 16) for part in found.groups())
    context = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None
