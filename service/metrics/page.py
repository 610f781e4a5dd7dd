"""What `GET /metrics` answers: the numbers of the whole service, whichever of its processes is asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from service.metrics.families import counts_are_shared
from service.metrics.present import INFO, KINDS

_STATE = frozenset(kind.name for kind in KINDS)

Read = Callable[[], Iterable[Metric]]


def page(registry: CollectorRegistry, accept: str | None, names: Collection[str]) -> tuple[bytes, str]:
    """The text and its content type. accept: header of the request. names: samples to show; all when there are none.

    With several processes that is what their files hold, also what the app counts beside Jitney. With one it is what
    the registry holds, and memory, CPU time and open files of the process, which several have no common number of.
    """
    read: Read = _of_all_processes if counts_are_shared() else lambda: _of_this_process(registry)
    shown = CollectorRegistry()
    shown.register(_Chosen(read, names))
    encode, content_type = choose_encoder(accept or "")
    return encode(shown), content_type


class _Chosen(Collector):
    """The samples of some names. The client library can choose only among what is registered one by one."""

    def __init__(self, read: Read, names: Collection[str]) -> None:
        self._read = read
        self._names = frozenset(names)

    def collect(self) -> Iterable[Metric]:
        """The families that have such samples."""
        for metric in self._read():
            if self._names:
                metric = _with(metric, lambda sample: sample.name in self._names)
            if metric.samples or not self._names:
                yield metric


def _of_this_process(registry: CollectorRegistry) -> Iterable[Metric]:
    yield from registry.collect()
    yield from PROCESS_COLLECTOR.collect()


def _of_all_processes() -> Iterable[Metric]:
    """In the order of their names: that of the files depends on the numbers of the processes."""
    read: Any = MultiProcessCollector
    metrics: list[Metric] = sorted(read(None).collect(), key=lambda metric: metric.name)
    loaded = {
        (sample.labels["name"], sample.labels["version"])
        for metric in metrics
        if metric.name == INFO
        for sample in metric.samples
        if sample.value
    }

    def is_there(sample: Sample) -> bool:
        """Whether a model that has left no more than its absence in the files is not meant."""
        if sample.name == INFO:
            return bool(sample.value)
        return sample.name not in _STATE or (sample.labels["model"], sample.labels["version"]) in loaded

    return [_with(metric, is_there) for metric in metrics]


def _with(metric: Metric, is_shown: Callable[[Sample], bool]) -> Metric:
    """The samples of a family that are to be shown."""
    chosen = Metric(metric.name, metric.documentation, metric.type)
    chosen.samples = [sample for sample in metric.samples if is_shown(sample)]
    return chosen
