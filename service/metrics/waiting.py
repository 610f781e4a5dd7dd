"""Counting the requests that wait for a thread."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from service.metrics.families import counts_are_shared


def show_waiting(registry: CollectorRegistry, waiting: Callable[[], int]) -> None:
    """Add a gauge that asks `waiting` whenever it is read.

    Which model such a request asks for is not known yet, so `inference_queue_depth` cannot hold it. Where several
    processes count together there is none: their files cannot ask.
    """
    if counts_are_shared():
        return
    gauge = Gauge("http_requests_waiting", "Requests that wait for a thread", registry=registry)
    gauge.set_function(waiting)
