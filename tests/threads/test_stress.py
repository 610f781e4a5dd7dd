"""Twenty thousand calls with the interpreter switching threads as often as it can."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Generator
from typing import Any

import pytest
from support.callers import all_at_once

from service.batching.batcher import ThreadedBatcher
from service.errors import DeadlineExceeded, QueueFull

THREADS = 16
CALLS = 20_000


@pytest.fixture
def hasty_switching() -> Generator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("policy", ["window", "eager"])
@pytest.mark.usefixtures("hasty_switching")
def test_no_call_hangs_or_gets_anothers_answer_and_nothing_is_left(policy: str) -> None:
    calls_each = CALLS // THREADS

    def client(number: int) -> int:
        for turn in range(calls_each):
            row = (number, turn)
            arrival = batcher.announce() if turn % 3 == 0 else None
            assert batcher.ask([row], 5.0, arrival=arrival).results == [row]
        return calls_each

    with ThreadedBatcher(
        lambda rows: list(rows), max_batch_size=8, max_batch_latency_s=0.001, policy=policy
    ) as batcher:
        outcomes = all_at_once([lambda number=number: client(number) for number in range(THREADS)])
        assert outcomes == [calls_each] * THREADS
        shown = repr(batcher)
    assert "queued=0 inside=0 on_the_way=0" in shown


@pytest.mark.usefixtures("hasty_switching")
def test_answers_and_timeouts_exclude_each_other_when_they_fall_together() -> None:
    served = 0

    def model(rows: list[Any]) -> list[Any]:
        nonlocal served
        served += len(rows)
        pause.wait(0.001)
        return list(rows)

    def client(number: int) -> tuple[int, int]:
        rng = random.Random(number)
        answered = late = 0
        for turn in range(150):
            rows = [(number, turn, index) for index in range(rng.randint(1, 5))]
            try:
                assert batcher.submit(rows, rng.uniform(0.001, 0.01)) == rows
                answered += 1
            except (DeadlineExceeded, QueueFull):
                late += 1
        return answered, late

    pause = threading.Event()
    with ThreadedBatcher(model, max_batch_size=8, max_batch_latency_s=0.001, max_queue_size=40) as batcher:
        outcomes = all_at_once([lambda number=number: client(number) for number in range(THREADS)])
        assert all(sum(outcome) == 150 for outcome in outcomes)
        assert sum(answered for answered, _ in outcomes) > 0
        assert sum(late for _, late in outcomes) > 0
        assert batcher.submit(["after"], 5.0) == ["after"]
        assert "queued=0 inside=0" in repr(batcher)
