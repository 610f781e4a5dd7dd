"""Counting HTTP requests: the exporter's page and registry, our names, and labels of bounded variety."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from flask import Flask, Response, current_app, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_flask_exporter import PrometheusMetrics
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from service.metrics.buckets import SECONDS

_log = logging.getLogger("jitney")

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_LABELS = ("method", "route", "status")

# Asked every few seconds by machines: they would drown the latencies of predictions.
_UNTIMED = frozenset({"/healthz", "/livez", "/metrics"})


class HttpMetrics(PrometheusMetrics):  # type: ignore[misc]
    """Adds `GET /metrics` to an app, and counts the requests that Flask answers.

    `route` is the URL rule, also where only the method is wrong, and never the raw path, so that a scanner cannot make
    new series. An app that has a page at `/metrics` already keeps it; it can show these numbers too by registering
    `registry` with its own, of which a `CollectorRegistry` may be a part like any collector.
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

    def register_endpoint(self, path: str, app: Flask) -> None:
        """Called by the exporter when it is bound to an app."""
        if any(rule.rule == path for rule in app.url_map.iter_rules()):
            _log.warning("the app has a page of its own at %s and keeps it; see HttpMetrics for both in one", path)
            return
        # Under the blueprint's name it has the headers and error answers of the other routes.
        app.add_url_rule(path, "jitney.metrics", self._page, merge_slashes=False, strict_slashes=True)

    def export_defaults(self, *_: Any, app: Flask, **__: Any) -> None:
        """Called by the exporter when it is bound to an app."""
        app.before_request(self._start)
        app.after_request(self._count)

    def _page(self) -> Response:
        """All series, or those that `?name[]=` asks for; in multiprocess mode the client library cannot choose."""
        names = None if "PROMETHEUS_MULTIPROC_DIR" in os.environ else request.args.getlist("name[]")
        text, content_type = self.generate_metrics(request.headers.get("Accept"), names)
        return Response(text, content_type=content_type)

    def _start(self) -> None:
        g.jitney_counted_from = time.perf_counter()

    def _count(self, response: Response) -> Response:
        route = _route()
        method = request.method if request.method in _METHODS else "other"
        labels = (method, route, str(response.status_code))
        self._requests.labels(*labels).inc()
        # A hook of the app that answered first has kept ours from running: then the time is not known.
        if route not in _UNTIMED and "jitney_counted_from" in g:
            self._seconds.labels(*labels).observe(time.perf_counter() - g.jitney_counted_from)
        return response


def _route() -> str:
    rule: Any = request.url_rule
    refusal = request.routing_exception
    if rule is None and isinstance(refusal, MethodNotAllowed) and refusal.valid_methods:
        adapter = current_app.create_url_adapter(request)
        try:
            rule = adapter and adapter.match(method=next(iter(refusal.valid_methods)), return_rule=True)[0]
        except HTTPException:  # the rules have come to differ, as in an app that answers for several hosts
            rule = None
    return "unmatched" if rule is None else str(rule.rule)
