"""Counting HTTP requests: the exporter's endpoint and registry, our names, and labels of bounded variety."""

from __future__ import annotations

import time
from typing import Any

from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_flask_exporter import PrometheusMetrics

from service.metrics.buckets import SECONDS

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_LABELS = ("method", "route", "status")

# Asked every few seconds by machines: they would drown the latencies of predictions.
_UNTIMED = frozenset({"/healthz", "/livez", "/metrics"})


class HttpMetrics(PrometheusMetrics):  # type: ignore[misc]
    """Adds `GET /metrics` to an app, and counts the requests that Flask answers.

    `route` is the URL rule, never the raw path, so that a scanner cannot make new series.
    """

    def __init__(self, app: Flask, registry: CollectorRegistry) -> None:
        self._requests = Counter("http_requests_total", "HTTP requests answered", _LABELS, registry=registry)
        self._seconds = Histogram(
            "http_request_duration_seconds",
            "Time to answer, probes left out",
            _LABELS,
            buckets=SECONDS,
            registry=registry,
        )
        super().__init__(app, registry=registry)

    def export_defaults(self, *_: Any, app: Flask, **__: Any) -> None:
        """Called by the exporter when it is bound to an app."""
        app.before_request(self._start)
        app.after_request(self._count)

    def generate_metrics(self, accept_header: str | None = None, names: Any = None) -> Any:
        """The text of `/metrics`; a filter for names that do not exist gives an empty page."""
        return super().generate_metrics(accept_header, names)

    def _start(self) -> None:
        g.jitney_started_at = time.perf_counter()

    def _count(self, response: Response) -> Response:
        rule = request.url_rule
        route = "unmatched" if rule is None else rule.rule
        method = request.method if request.method in _METHODS else "other"
        labels = (method, route, str(response.status_code))
        self._requests.labels(*labels).inc()
        if route not in _UNTIMED:
            self._seconds.labels(*labels).observe(time.perf_counter() - g.jitney_started_at)
        return response
