"""What a waiting caller notices, and when, although the worker is busy."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from support.callers import Callers
from support.models import GUARD_S, GatedModel
from support.parking import CountingInbox, RefittingInbox

from service.batching.batcher import GONE_CHECK_S, LONGEST_WAIT_S, ThreadedBatcher
from service.batching.one_shot import OneShotEvent
from service.errors import ClientGone, DeadlineExceeded


def test_a_deadline_is_noticed_on_time_although_the_worker_is_busy_and_the_row_is_never_run() -> None:
    model = GatedModel()
    with ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.submit(["slow"]))
        assert model.started.wait(GUARD_S)
        began_at = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"^no answer within \d+ ms$") as caught:
            batcher.submit(["hasty"], 0.3)
        took_s = time.monotonic() - began_at
        assert 0.3 <= took_s < 0.5
        assert 0.29 <= caught.value.waited_s < 0.5
        assert batcher.status().queued == 0
        model.release.set()
        assert callers.finish() == [["slow"]]
        assert batcher.submit(["next"]) == ["next"]
    assert model.calls == [["slow"], ["next"]]


def test_no_wait_is_negative_and_none_is_without_a_bound() -> None:
    waits: list[float] = []

    class Watched(OneShotEvent):
        def wait(self, timeout_s: float) -> bool:
            waits.append(timeout_s)
            return super().wait(timeout_s)

    def refit(ticket: Any) -> None:
        ticket.done = Watched()

    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.1, inbox=RefittingInbox(refit)) as batcher:
        with pytest.raises(DeadlineExceeded):
            batcher.submit(["late already"], -5.0)
        assert batcher.submit(["in no hurry"], 1e12) == ["in no hurry"]
    assert len(waits) == 2
    assert all(0 <= wait <= LONGEST_WAIT_S for wait in waits)


def test_a_client_that_left_is_noticed_while_its_row_waits() -> None:
    model, inbox = GatedModel(), CountingInbox()
    gone = threading.Event()
    with ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0, inbox=inbox) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.submit(["slow"]))
        assert model.started.wait(GUARD_S)
        callers.start(lambda: batcher.ask(["left"], is_gone=gone.is_set))
        inbox.wait_for_requests(2)
        began_at = time.monotonic()
        gone.set()
        while batcher.status().queued and time.monotonic() - began_at < GUARD_S:
            model.release.wait(0.01)
        assert time.monotonic() - began_at < 4 * GONE_CHECK_S
        model.release.set()
        slow, left = callers.finish()
        assert slow == ["slow"]
        assert isinstance(left, ClientGone)
    assert model.calls == [["slow"]]


def test_a_client_that_stays_is_asked_after_and_answered() -> None:
    model = GatedModel()
    asked = threading.Event()

    def is_gone() -> bool:
        asked.set()
        return False

    with ThreadedBatcher(model, max_batch_latency_s=0.0) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.ask(["stays"], is_gone=is_gone).results)
        assert asked.wait(GUARD_S)
        model.release.set()
        assert callers.finish() == [["stays"]]


def test_a_look_at_the_client_that_fails_withdraws_the_rows() -> None:
    model = GatedModel()

    def is_gone() -> bool:
        raise OSError("no such socket")

    with ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.submit(["slow"]))
        assert model.started.wait(GUARD_S)
        with pytest.raises(OSError, match="no such socket"):
            batcher.ask(["left"], is_gone=is_gone)
        assert batcher.status().queued == 0
        model.release.set()
        callers.finish()
    assert model.calls == [["slow"]]
