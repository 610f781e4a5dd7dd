"""What holds for every test: nothing is left running, on request nothing is skipped, demo models are built once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from flask import Flask
from hypothesis import settings
from support.rules import BuiltWhenAsked

from service.cpu_threads import POOL_VARIABLES
from service.demo.build import RECIPES, build, is_built
from service.demo.steps import console_report

# What gunicorn's configuration sets for its process when it is imported, which a test may do; and what it was before.
_SET_AT_IMPORT = {name: os.environ.get(name) for name in (*POOL_VARIABLES, "PROMETHEUS_DISABLE_CREATED_SERIES")}


@pytest.fixture(autouse=True)
def environment_as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give no test, and no server that it starts, what the import of a configuration has left behind."""
    for name, value in _SET_AT_IMPORT.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


# Of the apps that tests make in this process; those of real servers are Flask's own throughout.
Flask.url_rule_class = BuiltWhenAsked

# How long an example takes is the machine's affair.
settings.register_profile("jitney", deadline=None)
settings.load_profile("jitney")

# How long threads and child processes that are ending already may take.
ENDING_S = 3.0


def children() -> set[int]:
    """The process ids of this process's children, those of other threads included; empty where there is no /proc."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(int(pid) for pid in listing.read_text().split())
        except OSError:  # the thread has just ended
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Generator[None]:
    """Fail a test that leaves a thread or a process behind. What wider fixtures started before it may go on."""
    threads_before, children_before = set(threading.enumerate()), children()
    yield
    give_up_at = time.monotonic() + ENDING_S
    for thread in set(threading.enumerate()) - threads_before:
        thread.join(max(0.0, give_up_at - time.monotonic()))
    pause = threading.Event()
    while children() - children_before and time.monotonic() < give_up_at:
        pause.wait(0.02)
    left_threads = [thread.name for thread in threading.enumerate() if thread not in threads_before]
    left_children = sorted(children() - children_before)
    assert not left_threads, f"threads left running: {left_threads}"
    assert not left_children, f"child processes left: {left_children}"


def _skips_are_forbidden() -> bool:
    return os.environ.get("JITNEY_FORBID_SKIPS") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Turn a skip into a failure where everything is expected to run; only a missing GPU is excused."""
    report = yield
    excused = hasattr(report, "wasxfail") or item.get_closest_marker("gpu") is not None
    if report.skipped and _skips_are_forbidden() and not excused:
        report.outcome = "failed"
        report.longrepr = f"skipped, but JITNEY_FORBID_SKIPS=1: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """The same for a whole module that is skipped."""
    report = yield
    if report.skipped and _skips_are_forbidden():
        report.outcome = "failed"
        report.longrepr = f"skipped, but JITNEY_FORBID_SKIPS=1: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def demo_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all demo models; JITNEY_DEMO_MODELS names one to keep and use again."""
    kept = os.environ.get("JITNEY_DEMO_MODELS")
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    target = Path(kept) if kept else shared / "demo-models"
    with FileLock(shared / "demo-models.lock"):  # the first of the processes that run tests builds them for all
        missing = [name for name in RECIPES if not is_built(name, target)]
        result = build(missing, target, console_report(terminal=False))
    assert not result.failed
    return target
