"""Many observations at once count as they would one after the other."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Histogram

from service.metrics.group_histogram import GroupHistogram


def samples(kind, observe):
    registry = CollectorRegistry()
    histogram = kind("waits", "Waits", ("model",), registry=registry, buckets=(0.1, 0.5, 1.0)).labels("m")
    observe(histogram)
    return {
        (sample.name, sample.labels.get("le")): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.mark.parametrize(
    "amounts", [[], [0.3], [0.1, 0.1, 0.5], [0.0, 0.05, 0.11, 0.7, 1.0, 1.0001, 40.0], [float("inf"), 0.2]]
)
def test_a_group_is_counted_as_each_of_it_would_be(amounts):
    one_by_one = samples(Histogram, lambda histogram: [histogram.observe(amount) for amount in amounts])
    assert samples(GroupHistogram, lambda histogram: histogram.observe_all(amounts)) == pytest.approx(one_by_one)


def test_groups_and_single_observations_add_up():
    def both(histogram):
        histogram.observe(0.2)
        histogram.observe_all([0.2, 0.6])

    assert samples(GroupHistogram, both)[("waits_count", None)] == 3
    assert samples(GroupHistogram, both)[("waits_bucket", "0.5")] == 2
