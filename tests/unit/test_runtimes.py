"""The runtimes of the process, for server hooks that cannot see the app behind its middleware."""

from __future__ import annotations

import gc

from prometheus_client import CollectorRegistry

from service.metrics.batches import BatchMetrics
from service.runtime import Runtime
from service.runtimes import runtimes
from service.settings import Settings


def runtime() -> Runtime:
    return Runtime(Settings(), BatchMetrics(CollectorRegistry()))


def test_every_runtime_that_somebody_holds_is_found_whatever_holds_it() -> None:
    before = set(runtimes())
    held = [runtime(), runtime()]
    assert set(runtimes()) - before == set(held)


def test_a_runtime_that_nobody_holds_is_freed_and_forgotten() -> None:
    gc.collect()  # or those of earlier tests may go in the middle of this one
    before = len(runtimes())
    made = runtime()
    assert len(runtimes()) == before + 1
    del made
    gc.collect()
    assert len(runtimes()) <= before
