"""Starting, serving, closing: what a program that holds a batcher may rely on."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from support.callers import Callers
from support.models import GUARD_S, GatedModel
from support.parking import CountingInbox, Parking

from service.batching.admission import WorkerState
from service.batching.batcher import ThreadedBatcher
from service.batching.one_shot import OneShotEvent
from service.errors import DeadlineExceeded, Draining, ModelFailed, NotReady, QueueFull, WorkerDead


def test_a_batcher_in_a_with_block_serves_at_once_and_stops_at_the_end() -> None:
    with ThreadedBatcher(lambda rows: [row + 1 for row in rows], max_batch_latency_s=0.0) as batcher:
        assert batcher.submit([1, 2, 3]) == [2, 3, 4]
        assert batcher.status().alive
    assert batcher.status().state is WorkerState.STOPPED
    assert not batcher.status().alive


def test_whoever_has_started_a_batcher_may_submit_at_once() -> None:
    for _ in range(50):
        batcher = ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0)
        batcher.start()
        assert batcher.submit(["first"]) == ["first"]
        batcher.close()


def test_starting_twice_starts_one_thread() -> None:
    before = threading.active_count()
    with ThreadedBatcher(lambda rows: rows) as batcher:
        batcher.start()
        assert threading.active_count() == before + 1


def test_closing_twice_is_harmless_and_closed_is_for_good() -> None:
    batcher = ThreadedBatcher(lambda rows: rows)
    with batcher:
        pass
    assert batcher.close()
    batcher.start()
    assert not batcher.status().alive
    with pytest.raises(Draining):
        batcher.submit([1])


def test_a_batcher_that_was_never_started_refuses_and_closes() -> None:
    batcher = ThreadedBatcher(lambda rows: rows)
    with pytest.raises(NotReady):
        batcher.submit([1])
    assert batcher.close()
    assert batcher.status().state is WorkerState.STOPPED


def test_a_thread_that_cannot_be_started_leaves_the_batcher_dead() -> None:
    class NoName(str):
        def __format__(self, spec: str) -> str:
            return "x"

    batcher = ThreadedBatcher(lambda rows: rows, name=NoName())
    limit = threading.stack_size()
    try:
        threading.stack_size(2**40)  # more than the system can give
        with pytest.raises((RuntimeError, ValueError)):
            batcher.start()
    finally:
        threading.stack_size(limit)
    assert batcher.status().state is WorkerState.DEAD
    with pytest.raises(WorkerDead):
        batcher.submit([1])
    assert batcher.close()


def test_nobody_is_served_while_the_start_is_running() -> None:
    parking = Parking()
    batcher = ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0, on_start=parking.stop_here)
    batcher.start()
    assert parking.parked.wait(GUARD_S)
    with pytest.raises(NotReady, match="loading"):
        batcher.submit([1])
    assert not batcher.wait_started(0.0)
    parking.go.set()
    assert batcher.wait_started(GUARD_S)
    assert batcher.submit([1]) == [1]
    assert batcher.close()


def test_close_gives_up_on_a_start_that_does_not_end() -> None:
    parking = Parking()
    batcher = ThreadedBatcher(lambda rows: rows, on_start=parking.stop_here)
    batcher.start()
    assert parking.parked.wait(GUARD_S)
    assert batcher.close(timeout_s=0.05) is False
    assert batcher.status().state is WorkerState.DEAD
    parking.go.set()
    assert batcher.close()
    with pytest.raises(WorkerDead):
        batcher.submit([1])


def test_close_while_a_start_is_ending_stops_cleanly() -> None:
    parking = Parking()
    batcher = ThreadedBatcher(lambda rows: rows, on_start=parking.stop_here)
    batcher.start()
    assert parking.parked.wait(GUARD_S)
    callers = Callers()
    callers.start(batcher.close)
    parking.go.set()
    assert callers.finish() == [True]
    assert batcher.status().state is WorkerState.STOPPED


def test_close_answers_everything_that_is_inside() -> None:
    model, inbox = GatedModel(), CountingInbox()
    batcher = ThreadedBatcher(model, max_batch_size=2, max_batch_latency_s=60.0, inbox=inbox)
    batcher.start()
    callers = Callers()
    for number in range(7):
        callers.start(lambda number=number: batcher.submit([number]))
    inbox.wait_for_requests(7)
    callers.start(batcher.close)
    model.release.set()
    assert callers.finish() == [[number] for number in range(7)] + [True]
    assert batcher.status().queued == 0


def test_close_with_a_hung_model_answers_everyone_within_its_time() -> None:
    model, inbox = GatedModel(), CountingInbox()
    batcher = ThreadedBatcher(model, max_batch_size=2, max_batch_latency_s=0.0, inbox=inbox)
    batcher.start()
    callers = Callers()
    for number in range(5):
        callers.start(lambda number=number: batcher.submit([number]))
    inbox.wait_for_requests(5)
    assert model.started.wait(GUARD_S)
    began_at = time.monotonic()
    assert batcher.close(timeout_s=0.1) is False
    outcomes = callers.finish()
    assert time.monotonic() - began_at < GUARD_S / 2
    assert all(isinstance(outcome, WorkerDead) for outcome in outcomes)
    assert batcher.status().queued == 0
    model.release.set()
    assert batcher.close()
    assert len(model.calls) == 1  # the rest was answered already, and stays out of the model


def test_the_worker_itself_may_close_the_batcher() -> None:
    closed: list[bool] = []

    def model(rows: list[Any]) -> list[Any]:
        closed.append(batcher.close())
        return rows

    batcher = ThreadedBatcher(model, max_batch_latency_s=0.0)
    batcher.start()
    assert batcher.submit(["last"]) == ["last"]
    assert closed == [False]
    assert batcher.close()


def test_what_is_no_exception_ends_the_worker_and_everyone_inside_is_told_at_once() -> None:
    gate, inbox = GatedModel(), CountingInbox()

    def model(rows: list[Any]) -> list[Any]:
        gate(rows)
        raise SystemExit("killed")

    batcher = ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0, inbox=inbox)
    batcher.start()
    callers = Callers()
    for number in range(4):
        callers.start(lambda number=number: batcher.submit([number]))
    inbox.wait_for_requests(4)
    gate.release.set()
    outcomes = callers.finish()
    assert all(isinstance(outcome, WorkerDead) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 4
    with pytest.raises(WorkerDead) as caught:
        batcher.submit(["later"])
    assert isinstance(caught.value.__cause__, SystemExit)
    assert batcher.close()
    assert isinstance(batcher.status().cause, SystemExit)


def test_each_caller_gets_an_exception_of_its_own() -> None:
    def model(rows: list[Any]) -> list[Any]:
        raise ValueError("no")

    with ThreadedBatcher(model, max_batch_size=4, max_batch_latency_s=5.0) as batcher:
        callers = Callers()
        for number in range(4):
            callers.start(lambda number=number: batcher.submit([number]))
        outcomes = callers.finish()
    assert all(isinstance(outcome, ModelFailed) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 4


class Payload:
    """Something that can be watched."""


@pytest.mark.parametrize("ending", ["answered", "failed", "too late", "refused"])
def test_a_request_is_freed_without_the_garbage_collector(ending: str) -> None:
    gate = GatedModel()

    def model(rows: list[Any]) -> list[Any]:
        if ending == "failed":
            raise ValueError("no")
        if ending == "too late":
            gate(rows[:0])
        return [1] * len(rows)

    gc.collect()
    gc.disable()
    try:
        size = 0 if ending == "refused" else 8
        with ThreadedBatcher(model, max_batch_latency_s=0.0, max_queue_size=max(1, size)) as batcher:
            rows = [Payload() for _ in range(2)]
            watched = weakref.ref(rows[1])
            if ending == "answered":
                batcher.submit(rows)
            else:
                error = {"failed": ModelFailed, "too late": DeadlineExceeded, "refused": QueueFull}[ending]
                with pytest.raises(error) as caught:
                    batcher.submit(rows, 0.05 if ending == "too late" else None)
                del caught
            del rows
            gate.release.set()
        assert watched() is None
    finally:
        gc.enable()


def test_a_request_that_is_wrong_is_refused_on_its_own_thread() -> None:
    with ThreadedBatcher(lambda rows, key=None: rows, max_batch_latency_s=0.0) as batcher:
        with pytest.raises(TypeError):
            batcher.submit([1], key=["not hashable"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="lengths must be as many as rows"):
            batcher.submit([1, 2], lengths=[1])
        for wrong in (None, -5, 0, float("nan"), 1.5, 1.0, True, "1", 2**63, object()):
            with pytest.raises(ValueError, match=r"lengths\[1\] must be an integer of at least 1"):
                batcher.submit([1, 2], lengths=[np.int32(1), wrong])  # type: ignore[list-item]
        for timeout_s in (float("nan"), "5", True):
            with pytest.raises(ValueError, match="timeout_s must be a number of seconds"):
                batcher.submit([1], timeout_s)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="timeout_s must be a number of seconds"):
                batcher.call(lambda: None, timeout_s)  # type: ignore[arg-type]
        assert batcher.submit([1], float("inf"), key="k") == [1]
        with pytest.raises(DeadlineExceeded):
            batcher.submit([1], -5.0)
        assert batcher.submit([]) == []
        assert batcher.status().alive


@pytest.mark.parametrize("measured", [None, 0, 1.5, True])
def test_a_measured_length_is_checked_like_a_given_one(measured: Any) -> None:
    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0, length_of=lambda _: measured) as batcher:
        with pytest.raises(ValueError, match=r"lengths\[0\] must be an integer"):
            batcher.submit([1])
        assert batcher.submit([1], lengths=[1]) == [1]


def test_an_arrival_of_another_batcher_is_refused_and_counts_nowhere() -> None:
    with (
        ThreadedBatcher(lambda rows: rows, policy="eager") as one,
        ThreadedBatcher(lambda rows: rows, policy="eager") as other,
    ):
        arrival = other.announce()
        for wrong in (arrival, "an arrival"):
            with pytest.raises(ValueError, match="what announce"):
                one.ask([1], arrival=wrong)  # type: ignore[arg-type]
        assert one.status().queued == 0
        assert " on_the_way=0 " in repr(one)
        assert one.submit([1]) == [1]
        arrival.release()


@pytest.mark.parametrize("way", ["submit", "ask", "call"])
def test_the_worker_thread_cannot_wait_for_itself(way: str) -> None:
    batcher: ThreadedBatcher

    def predict(rows: list[Any]) -> list[Any]:
        if rows == ["inner"]:
            return rows
        arrival = batcher.announce()
        if way == "ask":
            batcher.ask(["inner"], arrival=arrival)
        arrival.release()
        return batcher.submit(["inner"]) if way == "submit" else [batcher.call(lambda: "inner")]

    with ThreadedBatcher(predict, max_batch_latency_s=0.0, policy="eager") as batcher:
        began = time.monotonic()
        with pytest.raises(ModelFailed) as caught:
            batcher.submit(["outer"], GUARD_S)
        assert time.monotonic() - began < GUARD_S / 2
        assert "would wait for itself" in str(caught.value.__cause__)
        assert " on_the_way=0 " in repr(batcher)
        assert batcher.submit(["inner"]) == ["inner"]


def test_a_thread_that_follows_the_worker_is_not_taken_for_it() -> None:
    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0) as batcher:
        assert batcher.submit([1]) == [1]
    for _ in range(5):  # the system gives the number of a thread that has ended to the next one
        callers = Callers()
        callers.start(lambda: batcher.submit([1]))
        assert isinstance(callers.finish()[0], Draining)


def test_a_wait_may_be_without_end() -> None:
    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0, default_timeout_s=float("inf")) as batcher:
        assert batcher.submit([1]) == [1]
        assert batcher.wait_started(float("inf"))
    assert batcher.close(float("inf"))


def test_lengths_are_measured_where_they_are_not_given() -> None:
    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.0, length_of=len) as batcher:
        answer = batcher.ask(["abc", "a"])
    assert (answer.batches[0].tokens, answer.batches[0].padded_length, answer.batches[0].padding_tokens) == (4, 3, 2)
    assert answer.model_s >= 0
    assert answer.queue_s >= 0


@pytest.mark.parametrize("ending", ["empty", "bad", "refused", "answered"])
def test_an_arrival_is_released_however_its_request_ends(ending: str) -> None:
    def length_of(row: Any) -> int:
        if ending == "bad":
            raise ValueError("no length")
        return 1

    with ThreadedBatcher(lambda rows: rows, policy="eager", length_of=length_of, max_queue_size=3) as batcher:
        rows = {"empty": [], "refused": [1] * 4}.get(ending, [1])
        try:
            batcher.ask(rows, arrival=batcher.announce())
        except (ValueError, QueueFull):
            assert ending in ("bad", "refused")
        assert " on_the_way=0 " in repr(batcher)


def test_status_tells_how_long_a_batch_has_been_running_and_how_long_rows_have_waited() -> None:
    model, inbox = GatedModel(), CountingInbox()
    with ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0, inbox=inbox) as batcher:
        assert batcher.status().last_batch_age_s is None
        callers = Callers()
        callers.start(lambda: batcher.submit(["a"]))
        assert model.started.wait(GUARD_S)
        callers.start(lambda: batcher.submit(["b"]))
        inbox.wait_for_requests(2)
        model.release.wait(0.05)
        status = batcher.status()
        assert (status.state, status.queued) == (WorkerState.RUNNING, 1)
        assert status.busy_s > 0.04
        assert 0.04 < status.oldest_wait_s < GUARD_S
        model.release.set()
        callers.finish()
        assert batcher.status().last_batch_age_s is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch_size": 0},
        {"max_batch_size": True},
        {"max_batch_size": 1.5},
        {"max_batch_size": 8.0},
        {"max_batch_size": "8"},
        {"max_batch_size": None},
        {"max_batch_size": 2**63},
        {"max_queue_size": 0},
        {"max_queue_size": 10.5},
        {"max_batch_tokens": 1.5},
        {"max_batch_tokens": "8"},
        {"max_batch_latency_s": "0.1"},
        {"max_batch_latency_s": None},
        {"max_batch_latency_s": True},
        {"default_timeout_s": "30"},
        {"max_batch_latency_s": -1},
        {"max_batch_latency_s": float("nan")},
        {"default_timeout_s": -1},
        {"max_batch_tokens": 0},
        {"policy": "sometimes"},
        {"scheduler": "best"},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        ThreadedBatcher(lambda rows: rows, **wrong)
    (name, value), *_ = wrong.items()
    assert name in str(caught.value) or repr(value) in str(caught.value)


def test_a_model_that_pads_further_can_say_so() -> None:
    with ThreadedBatcher(
        lambda rows: rows, max_batch_latency_s=0.0, length_of=len, padded_length=lambda _, longest: longest + 5
    ) as batcher:
        (info, _) = batcher.ask(["abc", "a"]).batches
    assert (info.padded_length, info.padding_tokens) == (8, 12)


def test_what_is_to_be_freed_is_freed_on_the_worker_thread_after_the_last_batch() -> None:
    seen: list[str] = []

    def predict(rows: list[object]) -> list[object]:
        seen.append(f"predict on {threading.current_thread().name}")
        return rows

    def free() -> None:
        seen.append(f"free on {threading.current_thread().name}")

    with ThreadedBatcher(predict, on_stop=free, name="m") as batcher:
        batcher.submit([1])
    assert batcher.close()
    assert seen == ["predict on m-worker", "free on m-worker"]


def test_a_failure_to_free_does_not_keep_the_batcher_from_closing(caplog: pytest.LogCaptureFixture) -> None:
    def free() -> None:
        raise RuntimeError("cannot free")

    batcher = ThreadedBatcher(lambda rows: rows, on_stop=free)
    batcher.start()
    assert batcher.close()
    assert "cannot free" in caplog.text


def test_rows_may_enter_without_anybody_who_waits_for_them() -> None:
    with ThreadedBatcher(lambda rows, key: rows, max_batch_latency_s=0.0, max_queue_size=2) as batcher:
        done = OneShotEvent()
        ticket = batcher.enter([1, 2], GUARD_S, done=done, key="k", request_id="r")
        assert done.wait(GUARD_S)
        assert (ticket.results, ticket.failure) == ([1, 2], None)
        batcher.leave(ticket)
        assert "inside=0" in repr(batcher)
        with pytest.raises(QueueFull):
            batcher.enter([1, 2, 3], GUARD_S, done=OneShotEvent(), key="k")


def test_whoever_entered_may_leave_before_the_model_sees_the_rows() -> None:
    model = GatedModel()
    with ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0) as batcher:
        first = batcher.enter(["a"], GUARD_S, done=OneShotEvent(), key="k")
        assert model.started.wait(GUARD_S)
        second = batcher.enter(["b"], GUARD_S, done=OneShotEvent(), key="k")
        batcher.leave(second)
        assert batcher.queued == 0
        model.release.set()
        assert first.done.wait(GUARD_S)
        batcher.leave(first)
    assert model.calls == [["a"]]
