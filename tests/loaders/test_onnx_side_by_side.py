"""An ONNX model on CPUs that several worker threads share: which of its sessions runs a batch."""

from __future__ import annotations

import threading
import types
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import pytest
from model_makers import linear_onnx
from support.callers import Callers, all_at_once
from support.models import GUARD_S
from support.parking import GRACE_S, Parking

from loaders import load_model
from loaders.devices import cpu_count
from loaders.formats.onnx import _shared_session
from loaders.formats.onnx_side_by_side import SessionSideBySide
from service.models.copies import copied

CPU = "CPUExecutionProvider"


class Named:
    """A session that answers with its name; the first run may stop half-way, and a run fails when told to."""

    def __init__(self, name: str, parking: Parking | None = None) -> None:
        self.name = name
        self._parking = parking

    def run(self, outputs: Any, feed: Any) -> str:
        if feed == "fail":
            raise ValueError(feed)
        parking, self._parking = self._parking, None
        if parking is not None:
            parking.stop_here()
        return self.name


class Runtime(types.ModuleType):
    """Stands in for onnxruntime, and keeps with how many threads sessions were made."""

    def __init__(self) -> None:
        super().__init__("onnxruntime")
        self.threads: list[int] = []

    def SessionOptions(self) -> Any:
        return types.SimpleNamespace(add_session_config_entry=lambda name, value: None)

    def get_available_providers(self) -> list[str]:
        return [CPU]

    def InferenceSession(self, path: str, *, sess_options: Any, providers: list[Any]) -> Any:
        self.threads.append(sess_options.intra_op_num_threads)
        return types.SimpleNamespace(get_providers=lambda: [CPU])


def test_a_batch_that_is_alone_has_all_threads_and_one_beside_it_has_a_share() -> None:
    parking = Parking()
    session = SessionSideBySide(Named("all", parking), [Named("share")] * 2)
    callers = Callers()
    callers.start(lambda: session.run(None, None))
    assert parking.parked.wait(GUARD_S)
    assert [session.run(None, None) for _ in range(3)] == ["share"] * 3
    parking.go.set()
    assert callers.finish() == ["all"]
    assert session.run(None, None) == "all"


def test_batches_side_by_side_have_sessions_of_their_own() -> None:
    first, second = Parking(), Parking()
    session = SessionSideBySide(Named("all", first), [Named("left"), Named("right", second)])
    callers = Callers()
    for parking in (first, second):
        callers.start(lambda: session.run(None, None))
        assert parking.parked.wait(GUARD_S)
    assert session.run(None, None) == "left"
    for parking in (first, second):
        parking.go.set()
    assert callers.finish() == ["all", "right"]


class ParkingSessions(list[Any]):
    """Whoever takes one out stops first."""

    def __init__(self, sessions: list[Any], parking: Parking) -> None:
        super().__init__(sessions)
        self._parking = parking

    def pop(self, index: SupportsIndex = -1) -> Any:
        self._parking.stop_here()
        return super().pop(index)


def test_a_batch_that_is_being_given_a_session_counts_already() -> None:
    alone, taking = Parking(), Parking()
    session = SessionSideBySide(Named("all", alone), ParkingSessions([Named("share")], taking))
    callers = Callers()
    callers.start(lambda: session.run(None, None))
    assert alone.parked.wait(GUARD_S)
    callers.start(lambda: session.run(None, None))
    assert taking.parked.wait(GUARD_S)
    alone.go.set()
    callers.start(lambda: session.run(None, None))
    assert not threading.Event().wait(GRACE_S)
    assert not callers.outcomes, "a batch passed by the one that takes its session"
    taking.go.set()
    callers.finish()


def test_more_callers_than_were_told_of_are_served() -> None:
    first, second = Parking(), Parking()
    session = SessionSideBySide(Named("all", first), [Named("share", second)])
    callers = Callers()
    for parking in (first, second):
        callers.start(lambda: session.run(None, None))
        assert parking.parked.wait(GUARD_S)
    assert session.run(None, None) == "all"
    for parking in (first, second):
        parking.go.set()
    callers.finish()


def test_a_batch_that_fails_leaves_its_place() -> None:
    parking = Parking()
    session = SessionSideBySide(Named("all", parking), [Named("share")])
    callers = Callers()
    callers.start(lambda: session.run(None, None))
    assert parking.parked.wait(GUARD_S)
    with pytest.raises(ValueError, match="fail"):
        session.run(None, "fail")
    assert session.run(None, None) == "share"
    parking.go.set()
    callers.finish()
    with pytest.raises(ValueError, match="fail"):
        session.run(None, "fail")
    assert session.run(None, None) == "all"


@pytest.mark.parametrize(
    ("share", "instances", "cpus", "threads"),
    [
        (1, 1, 8, [1]),
        (1, 2, 8, [2, 1]),
        (1, 4, 8, [4, 1]),
        (1, 4, 2, [2, 1]),
        (1, 2, 1, [1]),
        pytest.param(2, 2, 8, [4, 2, 2], marks=pytest.mark.skipif(cpu_count() < 2, reason="needs two CPUs")),
        pytest.param(2, 2, 2, [2], marks=pytest.mark.skipif(cpu_count() < 2, reason="needs two CPUs")),
    ],
)
def test_sessions_are_as_many_as_have_threads_of_their_own(
    monkeypatch: pytest.MonkeyPatch, share: int, instances: int, cpus: int, threads: list[int]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(share))
    runtime = Runtime()
    _shared_session(runtime, Path("m.onnx"), "cpu", instances, cpus)
    assert runtime.threads == threads


@pytest.mark.skipif(cpu_count() < 2, reason="one CPU is nothing to share out")
def test_worker_threads_share_one_model_and_get_the_answers_of_one_alone(tmp_path: Path) -> None:
    path = linear_onnx(tmp_path / "m.onnx")
    handle = copied(lambda: load_model(path, device="cpu", instances=2), path, 2)
    assert handle.is_thread_safe
    assert not handle.is_pipelined  # batches run side by side
    rows = list(np.random.default_rng(0).uniform(0, 16, (32, 4)).astype(np.float32))
    alone = load_model(path, device="cpu").predict_batch(rows)
    for answers in all_at_once([lambda: handle.predict_batch(rows)] * 8):
        np.testing.assert_allclose(answers, alone, rtol=1e-6)


def test_one_worker_thread_has_a_session_of_its_own(digits_onnx: Path) -> None:
    assert not load_model(digits_onnx, device="cpu").is_thread_safe
