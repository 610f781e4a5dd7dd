from __future__ import annotations

from prometheus_client import CollectorRegistry

from service.metrics.waiting import show_waiting


def test_the_gauge_asks_whenever_it_is_read():
    registry, waiting = CollectorRegistry(), [3, 5]
    show_waiting(registry, lambda: waiting.pop(0))
    assert [registry.get_sample_value("http_requests_waiting") for _ in range(2)] == [3, 5]
