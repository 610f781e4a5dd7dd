"""What other batchers got wrong when many callers came at once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from support.callers import Callers, all_at_once
from support.models import GUARD_S, GatedModel
from support.parking import CountingInbox

from service.batching.batcher import ThreadedBatcher
from service.errors import DeadlineExceeded, OutputCountMismatch, QueueFull

# What a loaded test machine may add to any time.
SLACK_S = 0.5

pause = threading.Event()  # never set: a wait on it is time that passes in a model or between calls


def test_every_caller_gets_its_own_rows_in_its_own_order() -> None:
    def client(number: int) -> bool:
        rng = random.Random(number)
        for turn in range(50):
            rows = [number * 10_000 + turn * 100 + index for index in range(rng.randint(1, 5))]
            assert batcher.submit(rows) == rows
        return True

    with ThreadedBatcher(lambda rows: list(rows), max_batch_size=8, max_batch_latency_s=0.002) as batcher:
        assert all_at_once([lambda number=number: client(number) for number in range(32)]) == [True] * 32


@pytest.mark.parametrize("wrong", [lambda rows: rows[:-1], lambda rows: [*rows, 1], lambda rows: 5, lambda rows: None])
def test_a_wrong_number_of_results_gives_nobody_anothers_value_and_the_worker_lives(wrong: Any) -> None:
    bad = True

    def model(rows: list[Any]) -> Any:
        return wrong(rows) if bad else rows

    with ThreadedBatcher(model, max_batch_size=4, max_batch_latency_s=5.0) as batcher:
        outcomes = all_at_once([lambda row=row: batcher.submit([row]) for row in range(4)])
        assert all(isinstance(outcome, OutputCountMismatch) for outcome in outcomes)
        assert all("output count" in str(outcome) for outcome in outcomes)
        bad = False
        assert all_at_once([lambda row=row: batcher.submit([row]) for row in range(4)]) == [[0], [1], [2], [3]]


def test_a_lone_request_after_a_quiet_time_needs_no_second_one() -> None:
    rng = random.Random(7)
    with ThreadedBatcher(lambda rows: rows, max_batch_size=32, max_batch_latency_s=0.05) as batcher:
        for turn in range(12):
            pause.wait(rng.uniform(0.0, 0.05))
            began_at = time.monotonic()
            assert batcher.submit([turn]) == [turn]
            assert 0.045 < time.monotonic() - began_at < 0.05 + SLACK_S


def test_requests_within_one_window_share_a_batch() -> None:
    sizes: list[int] = []

    def model(rows: list[Any]) -> list[Any]:
        sizes.append(len(rows))
        return rows

    with ThreadedBatcher(model, max_batch_size=100, max_batch_latency_s=0.6) as batcher:
        callers = Callers()
        for number in range(10):
            callers.start(lambda number=number: batcher.submit([number]))
            pause.wait(0.02)
        callers.finish()
    assert sizes == [10]


def test_a_steady_stream_does_not_hold_the_window_open() -> None:
    waits: list[float] = []

    def call(number: int) -> None:
        began_at = time.monotonic()
        batcher.submit([number])
        waits.append(time.monotonic() - began_at)

    with ThreadedBatcher(lambda rows: rows, max_batch_size=100, max_batch_latency_s=0.2) as batcher:
        callers = Callers()
        for number in range(24):
            callers.start(lambda number=number: call(number))
            pause.wait(0.04)
        callers.finish()
    assert max(waits) < 0.2 + SLACK_S
    assert max(waits) > 0.15


def test_stepping_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadedBatcher(lambda rows: rows, max_batch_latency_s=0.1) as batcher:
        monkeypatch.setattr(time, "time", lambda: 0.0)
        began_at = time.monotonic()
        assert batcher.submit([1], 5.0) == [1]
        assert 0.09 < time.monotonic() - began_at < 0.1 + SLACK_S


def test_different_keys_never_share_a_batch() -> None:
    mixed: list[Any] = []

    def model(rows: list[Any], key: Hashable) -> list[Any]:
        if any(wanted != key for wanted, _ in rows):
            mixed.append((key, rows))
        return [number + key for _, number in rows]

    with ThreadedBatcher(model, max_batch_size=8, max_batch_latency_s=0.005) as batcher:
        keys = [1 if number % 2 else 100 for number in range(16)]
        outcomes = all_at_once(
            [lambda key=key, number=number: batcher.submit([(key, number)], key=key) for number, key in enumerate(keys)]
        )
    assert outcomes == [[number + key] for number, key in enumerate(keys)]
    assert not mixed


def test_rows_of_different_shapes_are_stacked_apart() -> None:
    with ThreadedBatcher(
        lambda rows, key: np.stack(rows).sum(axis=1), max_batch_size=8, max_batch_latency_s=0.005
    ) as batcher:
        widths = [4, 4, 3, 4, 7, 4, 7, 4]
        outcomes = all_at_once(
            [lambda width=width: batcher.submit([np.ones(width)], key=("float64", width)) for width in widths]
        )
    assert [float(outcome[0]) for outcome in outcomes] == widths


def test_what_does_not_fit_into_the_queue_is_refused_at_once_and_the_rest_is_served() -> None:
    model, inbox = GatedModel(), CountingInbox()
    with ThreadedBatcher(model, max_batch_size=8, max_batch_latency_s=0.0, max_queue_size=16, inbox=inbox) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.submit(["busy"]))
        assert model.started.wait(GUARD_S)
        for number in range(16):
            callers.start(lambda number=number: batcher.submit([number]))
        inbox.wait_for_requests(17)
        for rows in ([1], [1, 2, 3]):
            began_at = time.monotonic()
            with pytest.raises(QueueFull) as caught:
                batcher.submit(rows)
            assert time.monotonic() - began_at < GUARD_S / 2  # the worker is held until they are refused
            assert (caught.value.queued, caught.value.limit) == (16, 16)
        model.release.set()
        assert callers.finish() == [["busy"], *([number] for number in range(16))]
        assert batcher.status().queued == 0
        assert batcher.submit(["after"]) == ["after"]
        assert batcher.status().backlog_s == 0


def test_a_refusal_tells_how_long_the_backlog_will_take() -> None:
    def model(rows: list[Any]) -> list[Any]:
        pause.wait(0.05)
        return gate(rows) if rows[0] == "held" else list(rows)

    gate, inbox = GatedModel(), CountingInbox()
    with ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0, max_queue_size=4, inbox=inbox) as batcher:
        batcher.submit(["measured"])
        callers = Callers()
        callers.start(lambda: batcher.submit(["held"]))
        assert gate.started.wait(GUARD_S)
        for number in range(4):
            callers.start(lambda number=number: batcher.submit([number]))
        inbox.wait_for_requests(6)
        with pytest.raises(QueueFull) as caught:
            batcher.submit(["surplus"])
        gate.release.set()
        callers.finish()
    assert 4 * 0.05 <= caught.value.retry_after_s < 4 * (0.05 + SLACK_S)


def test_a_row_stuck_behind_a_slow_batch_is_told_on_time_and_never_run() -> None:
    model = GatedModel()
    with ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0) as batcher:
        callers = Callers()
        callers.start(lambda: batcher.submit(["a"]))
        assert model.started.wait(GUARD_S)
        began_at = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            batcher.submit(["b"], 0.2)
        assert 0.2 <= time.monotonic() - began_at < 0.2 + SLACK_S
        model.release.set()
        callers.finish()
    assert model.calls == [["a"]]


def test_single_rows_are_served_between_the_rows_of_a_bulk_caller() -> None:
    def model(rows: list[Any]) -> list[Any]:
        pause.wait(0.0005 * len(rows))
        return list(rows)

    waits: list[float] = []

    def single(number: int) -> None:
        began_at = time.monotonic()
        assert batcher.submit([f"single{number}"]) == [f"single{number}"]
        waits.append(time.monotonic() - began_at)

    bulk = list(range(1000))
    inbox = CountingInbox()
    with ThreadedBatcher(
        model, max_batch_size=8, max_batch_latency_s=0.005, max_queue_size=2000, inbox=inbox
    ) as batcher:
        callers = Callers()
        callers.start(lambda: (batcher.submit(bulk), time.monotonic()))
        inbox.wait_for_requests(1)
        began_at = time.monotonic()
        for number in range(50):
            callers.start(lambda number=number: single(number))
        results, bulk_ended_at = callers.finish()[0]
    assert results == bulk
    waits.sort()
    assert len(waits) == 50
    # 50 rows are 7 batches, and between each two of them goes one batch of the bulk caller.
    assert waits[47] < (bulk_ended_at - began_at) / 2


def test_no_rows_are_answered_with_none_and_touch_nothing() -> None:
    model = GatedModel()
    with ThreadedBatcher(model, max_batch_size=8, max_batch_latency_s=0.005) as batcher:
        assert batcher.submit([]) == []
        assert model.calls == []
        model.release.set()
        outcomes = all_at_once(
            [lambda number=number: batcher.submit([number] if number else []) for number in range(8)]
        )
    assert outcomes == [[], *([number] for number in range(1, 8))]


def test_answers_keep_their_values_when_the_model_writes_into_its_buffer_again() -> None:
    buffer = np.zeros((4, 1))

    def model(rows: list[Any]) -> Any:
        buffer[: len(rows), 0] = rows
        return buffer[: len(rows)]

    with ThreadedBatcher(model, max_batch_size=4, max_batch_latency_s=0.02) as batcher:
        first = all_at_once([lambda row=row: batcher.submit([float(row)]) for row in range(4)])
        second = all_at_once([lambda row=row: batcher.submit([float(row)]) for row in range(10, 14)])
    assert [float(outcome[0][0]) for outcome in first] == [0, 1, 2, 3]
    assert [float(outcome[0][0]) for outcome in second] == [10, 11, 12, 13]
