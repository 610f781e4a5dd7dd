"""Whether whoever waits for somebody waits longer than that one does."""

from __future__ import annotations

import math
from collections.abc import Iterator

from service.doctor.findings import Finding, error, ok, warning
from service.doctor.gunicorn_values import GunicornValues
from service.settings import STOP_MARGIN_S, Settings


def check_timeouts(settings: Settings, values: GunicornValues) -> Iterator[Finding]:
    """The times of the service in their order: company, deadline, stall, stop. nginx has its own module."""
    wait_ms, request_ms = settings.max_batch_latency_ms, settings.request_timeout_ms
    if wait_ms >= request_ms:
        found = f"a row waits {wait_ms:g} ms for company, and its request is given up after {request_ms:g} ms"
        yield error("MAX_BATCH_LATENCY_MS", found, f"MAX_BATCH_LATENCY_MS={request_ms / 10:g}")
    else:
        yield ok("MAX_BATCH_LATENCY_MS", f"{wait_ms:g} ms: less than REQUEST_TIMEOUT_MS={request_ms:g}")
    yield _stop(request_ms / 1000, values.graceful_timeout_s)
    if settings.stall_limit_ms <= request_ms:
        found = f"a batch of {settings.stall_limit_ms:g} ms counts as stuck while its callers still wait for it"
        yield warning("STALL_LIMIT_MS", found, f"STALL_LIMIT_MS={2 * request_ms:g}")
    else:
        yield ok("STALL_LIMIT_MS", f"{settings.stall_limit_ms:g} ms: more than REQUEST_TIMEOUT_MS={request_ms:g}")


def _stop(request_s: float, stop_s: float) -> Finding:
    least_s = request_s + STOP_MARGIN_S
    if stop_s < least_s:
        found = f"a stop gives requests {stop_s:g} s, REQUEST_TIMEOUT_MS gives them {request_s:g} s: some would be cut"
        return error("GRACEFUL_TIMEOUT_S", found, f"GRACEFUL_TIMEOUT_S={math.ceil(least_s)}")
    found = f"{stop_s:g} s: REQUEST_TIMEOUT_MS and at least {STOP_MARGIN_S} s more; the platform's own must be longer"
    return ok("GRACEFUL_TIMEOUT_S", found)
