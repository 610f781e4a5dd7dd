"""Making metrics that count alike whether a service is one process or several.

With several, the client library keeps each value in a file of its process, and any of them answers for all.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from prometheus_client import Counter, Gauge, Histogram, values

from service.metrics.group_histogram import GroupHistogram

Family = TypeVar("Family", Counter, Gauge, Histogram, GroupHistogram)


def counts_are_shared() -> bool:
    """Whether this process counts into files that other processes read.

    Decided by the client library, when it was imported.
    """
    return values.ValueClass is not values.MutexValue


def family(kind: type[Family], name: str, text: str, labels: tuple[str, ...], registry: Any, **more: Any) -> Family:
    """A metric with these labels: a new one in `registry`, or the only one of this process where counts are shared.

    There, two apps in one process must not have one each: both would write the same place of the same file, from what
    each remembers, and undo what the other has counted.
    """
    if counts_are_shared():
        only: Family = _of_this_process(kind, name, text, labels, **more)
        return only
    return kind(name, text, labels, registry=registry, **more)


@cache
def _of_this_process(kind: Any, name: str, text: str, labels: tuple[str, ...], **more: Any) -> Any:
    return kind(name, text, labels, registry=None, **more)  # the files are read instead of a registry
