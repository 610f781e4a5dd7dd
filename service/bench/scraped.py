"""What a server counted of itself between two looks at its `/metrics`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by upper bound, not cumulated, in the unit of the metric; and their sum."""

    counts: dict[float, float] = field(default_factory=dict)
    sum: float = 0.0

    @property
    def count(self) -> float:
        """How many were observed."""
        return math.fsum(self.counts.values())

    @property
    def mean(self) -> float:
        """NaN where nothing was observed."""
        return self.sum / self.count if self.count > 0 else math.nan

    def quantile(self, share: float) -> float:
        """The value that this share of the observations does not exceed, as if they lay evenly within a bucket.

        NaN where nothing was observed; for the last, open bucket its lower bound.
        """
        wanted, below, low = share * self.count, 0.0, 0.0
        for bound in sorted(self.counts):
            here = self.counts[bound]
            if here > 0 and below + here >= wanted:
                return low if math.isinf(bound) else low + (bound - low) * max(0.0, wanted - below) / here
            below, low = below + here, bound
        return math.nan

    def __sub__(self, earlier: Histogram) -> Histogram:
        bounds = self.counts.keys() | earlier.counts.keys()
        counts = {bound: self.counts.get(bound, 0.0) - earlier.counts.get(bound, 0.0) for bound in bounds}
        return Histogram(counts, self.sum - earlier.sum)


HISTOGRAMS = (
    "inference_batch_size",
    "inference_queue_wait_seconds",
    "inference_model_seconds",
    "inference_preprocess_seconds",
)
COUNTERS = ("inference_tokens_total", "inference_padding_tokens_total")


@dataclass(frozen=True, slots=True)
class Scrape:
    """Histograms and counters by name."""

    histograms: dict[str, Histogram]
    counters: dict[str, float]

    @classmethod
    def parse(cls, text: str, labels: Mapping[str, str] | None = None) -> Scrape:
        """Of the text that `/metrics` answers; what is missing counts as zero. Raises ValueError for other texts.

        labels: of what is taken from it; None for all models and versions together.
        """
        wanted = (labels or {}).items()
        cumulated: dict[str, dict[float, float]] = {name: defaultdict(float) for name in HISTOGRAMS}
        sums = dict.fromkeys(HISTOGRAMS, 0.0)
        counters = dict.fromkeys(COUNTERS, 0.0)
        for metric in text_string_to_metric_families(text):
            for sample in metric.samples:
                if not wanted <= sample.labels.items():
                    continue
                if sample.name in counters:
                    counters[sample.name] += sample.value
                elif metric.name not in cumulated:
                    continue
                elif sample.name.endswith("_bucket"):
                    cumulated[metric.name][float(sample.labels["le"])] += sample.value
                elif sample.name.endswith("_sum"):
                    sums[metric.name] += sample.value
        return cls({name: Histogram(_apart(cumulated[name]), sums[name]) for name in HISTOGRAMS}, counters)

    def __sub__(self, earlier: Scrape) -> Scrape:
        return Scrape(
            {name: self.histograms[name] - earlier.histograms[name] for name in HISTOGRAMS},
            {name: self.counters[name] - earlier.counters[name] for name in COUNTERS},
        )

    def since(self, earlier: Scrape) -> Scrape | None:
        """What was counted since `earlier`; None where the server has begun to count anew."""
        between = self - earlier
        counts = [count for histogram in between.histograms.values() for count in histogram.counts.values()]
        return None if min([*counts, *between.counters.values()], default=0.0) < 0 else between

    @property
    def batch_size(self) -> Histogram:
        """Rows."""
        return self.histograms["inference_batch_size"]

    @property
    def queue_wait_s(self) -> Histogram:
        """Of each row."""
        return self.histograms["inference_queue_wait_seconds"]

    @property
    def model_s(self) -> Histogram:
        """Of each batch."""
        return self.histograms["inference_model_seconds"]

    @property
    def preprocess_s(self) -> Histogram:
        """Of each request."""
        return self.histograms["inference_preprocess_seconds"]

    @property
    def padding_share(self) -> float:
        """Of all tokens that the model saw; NaN where it saw none."""
        padding, own = self.counters["inference_padding_tokens_total"], self.counters["inference_tokens_total"]
        return padding / (padding + own) if padding + own > 0 else math.nan


def _apart(cumulated: Mapping[float, float]) -> dict[float, float]:
    counts: dict[float, float] = {}
    below = 0.0
    for bound in sorted(cumulated):
        counts[bound], below = cumulated[bound] - below, cumulated[bound]
    return counts
