"""Counting HTTP requests: the exporter's page and registry, our names, and labels of bounded variety."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from flask import Flask, Request, Response, current_app, request
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_flask_exporter import PrometheusMetrics
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from service.methods import method_label
from service.metrics.buckets import SECONDS
from service.metrics.families import family
from service.metrics.page import page
from service.probe_paths import BACKGROUND_PATHS
from service.route_label import route_label

_log = logging.getLogger("jitney")

_LABELS = ("method", "route", "status")


class HttpMetrics(PrometheusMetrics):  # type: ignore[misc]
    """Adds `GET /metrics` to an app, and counts the requests that Flask answers.

    `route` is the URL rule, also where only the method is wrong, and never the raw path, so that a scanner cannot make
    new series. An app that has a page at `/metrics` already keeps it; it can show these numbers too by registering
    `registry` with its own, of which a `CollectorRegistry` may be a part like any collector. Where processes count
    together the registry is empty, and the client library's `MultiProcessCollector` has these numbers too.

    refresh: called before the numbers are read.
    """

    def __init__(self, app: Flask, registry: CollectorRegistry, refresh: Callable[[], None]) -> None:
        self._requests = family(Counter, "http_requests_total", "HTTP requests answered", _LABELS, registry)
        self._seconds = family(
            Histogram,
            "http_request_duration_seconds",
            "Time to answer, probes left out",
            _LABELS,
            registry,
            buckets=SECONDS,
        )
        self._refresh = refresh
        self._series: dict[tuple[str, str, str], tuple[Counter, Histogram | None]] = {}
        super().__init__(app, registry=registry)

    def register_endpoint(self, path: str, app: Flask) -> None:
        """Called by the exporter when it is bound to an app."""
        if any(rule.rule == path for rule in app.url_map.iter_rules()):
            _log.warning("the app has a page of its own at %s and keeps it; see HttpMetrics for both in one", path)
            return
        # Under the blueprint's name it has the headers and error answers of the other routes.
        app.add_url_rule(path, "jitney.metrics", self._page, merge_slashes=False, strict_slashes=True)

    def export_defaults(self, *_: Any, **__: Any) -> None:
        """Called by the exporter when it is bound to an app; counting is left to whoever calls `count`."""

    def _page(self) -> Response:
        """All series, or those that `?name[]=` asks for."""
        self._refresh()
        text, content_type = page(self.registry, request.headers.get("Accept"), request.args.getlist("name[]"))
        return Response(text, content_type=content_type)

    def count(self, request: Request, response: Response, started_at: float) -> tuple[str, str]:
        """Count a request that has been answered, and tell under which method and route.

        started_at: `time.perf_counter()` at its beginning.
        """
        rule = request.url_rule
        route = _route(request) if rule is None else route_label(rule.rule)
        method = method_label(request.method)
        self.count_answer(method, route, response.status_code, time.perf_counter() - started_at)
        return method, route

    def count_unseen(self, method: str, status: int, seconds: float) -> None:
        """Count what was answered before the app could see it. method: its label."""
        self.count_answer(method, "unmatched", status, seconds)

    def count_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer under these labels, of which no part is a caller's own text."""
        labels = (method, route, str(status))
        series = self._series.get(labels)
        if series is None:
            # Finding the series of some labels costs more than counting; there is a bounded number of them.
            timed = None if route in BACKGROUND_PATHS else self._seconds.labels(*labels)
            series = self._series[labels] = self._requests.labels(*labels), timed
        counter, histogram = series
        counter.inc()
        if histogram is not None:
            histogram.observe(seconds)


def _route(request: Request) -> str:
    """The rule that would have matched, had the method been another one."""
    refusal = request.routing_exception
    rule: Any = None
    if isinstance(refusal, MethodNotAllowed) and refusal.valid_methods:
        adapter = current_app.create_url_adapter(request)
        try:
            rule = adapter and adapter.match(method=next(iter(refusal.valid_methods)), return_rule=True)[0]
        except HTTPException:  # the rules have come to differ, as in an app that answers for several hosts
            rule = None
    return "unmatched" if rule is None else route_label(str(rule.rule))
