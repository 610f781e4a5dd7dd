"""Worker threads that follow each other through one copy of a model, as on a GPU."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.callers import Callers, all_at_once
from support.core import Listener
from support.gates import AskedInbox, Gates, two
from support.models import GUARD_S

from service.batching.admission import Signal
from service.batching.batcher import ThreadedBatcher
from service.batching.tickets import BatchInfo, LaneName
from service.batching.worker import IDLE_WAIT_S
from service.errors import WorkerDead

# A caller that nobody answers finds out after this long.
HANGING_S = 3.0


def pipelined(model: Any, **more: Any) -> ThreadedBatcher:
    """Two threads and batches of two rows; rows leave at once when nothing is in the model."""
    return two(model, **{"max_batch_size": 2, "is_pipelined": lambda key: True, **more})


class WatchedInbox(AskedInbox):
    """An inbox that tells how long the leader was ready to wait, last."""

    patience_s: float | None = None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self.patience_s = timeout
        return super().get(block, timeout)

    def wait_until_asked(self, times: int) -> None:
        for _ in range(times):
            assert self.asked.acquire(timeout=GUARD_S), "the leader does not come to wait"


def put_one_behind(
    batcher: ThreadedBatcher, model: Gates, inbox: WatchedInbox, callers: Callers, ahead: str, behind: str
) -> None:
    """A row in the model, and another one that waits for it in the hands of the leader."""
    callers.start(lambda: batcher.submit([ahead], HANGING_S))
    model.wait_for(ahead)
    inbox.wait_until_asked(2)  # by the thread that has the batch, and by the one that leads now
    callers.start(lambda: batcher.submit([behind], HANGING_S))
    inbox.wait_until_asked(1)  # again, with a row that is due


def test_a_batch_that_is_not_full_waits_until_the_one_in_the_model_is_back() -> None:
    model, inbox, callers = Gates(), WatchedInbox(), Callers()
    with pipelined(model, inbox=inbox) as batcher:
        put_one_behind(batcher, model, inbox, callers, "a", "b")
        assert inbox.patience_s == IDLE_WAIT_S, "it waits for a message and looks at no clock"
        assert list(model.inside) == ["a"]
        model.let_go("a")
        model.wait_for("b")
        model.let_go("all")
        assert callers.finish() == [["a"], ["b"]]


def test_what_comes_meanwhile_joins_it() -> None:
    model, inbox, callers = Gates(), WatchedInbox(), Callers()
    with pipelined(model, inbox=inbox, max_batch_size=4) as batcher:
        for row in "abc":
            callers.start(lambda row=row: batcher.submit([row], HANGING_S))
            model.wait_for("a")
            inbox.wait_until_asked(2 if row == "a" else 1)
        model.let_go("all")
        assert callers.finish() == [["a"], ["b"], ["c"]]
    assert model.seen == [["a"], ["b", "c"]]


def test_a_full_batch_is_taken_while_another_one_is_in_the_model() -> None:
    model, callers = Gates(), Callers()
    with pipelined(model) as batcher:
        callers.start(lambda: batcher.submit(["a"]))
        model.wait_for("a")
        callers.start(lambda: batcher.submit(["b", "c"]))
        model.wait_for("a", "b")
        model.let_go("all")
        assert callers.finish() == [["a"], ["b", "c"]]


def test_so_is_one_that_uses_up_the_tokens() -> None:
    model, callers = Gates(), Callers()
    with pipelined(model, max_batch_tokens=4, length_of=len) as batcher:
        callers.start(lambda: batcher.submit(["a"]))
        model.wait_for("a")
        callers.start(lambda: batcher.submit(["long"]))
        model.wait_for("a", "long")
        model.let_go("all")
        assert callers.finish() == [["a"], ["long"]]


def test_rows_that_wait_are_not_shared_among_threads_with_one_copy() -> None:
    sizes: list[int] = []

    def model(rows: list[Any]) -> list[Any]:
        sizes.append(len(rows))
        return rows

    with pipelined(model, max_batch_size=8) as batcher:
        assert batcher.submit(list(range(7))) == list(range(7))
    assert sizes == [7]


def test_a_model_with_copies_waits_for_no_other() -> None:
    model, callers = Gates(), Callers()
    with pipelined(model, is_pipelined=lambda key: key == "on the card") as batcher:
        callers.start(lambda: batcher.submit(["a"], key="on the card"))
        model.wait_for("a")
        callers.start(lambda: batcher.submit(["b"], key="on the CPU"))
        model.wait_for("a", "b")
        model.let_go("all")
        assert callers.finish() == [["a"], ["b"]]


def test_a_lane_whose_row_is_due_is_not_passed_over_by_full_batches_of_another() -> None:
    model, callers = Gates(), Callers()
    inbox = WatchedInbox()
    with pipelined(model, inbox=inbox) as batcher:
        callers.start(lambda: batcher.submit(["first"], HANGING_S, key="busy"))
        model.wait_for("first")
        inbox.wait_until_asked(2)
        callers.start(lambda: batcher.submit(["alone"], HANGING_S, key="quiet"))
        inbox.wait_until_asked(1)
        callers.start(lambda: batcher.submit(["full", "full"], HANGING_S, key="busy"))
        model.wait_for("first", "alone")
        model.let_go("all")
        assert callers.finish() == [["first"], ["alone"], ["full", "full"]]


def test_nothing_waits_for_company_any_more_when_the_batcher_closes() -> None:
    model, inbox, callers = Gates(), WatchedInbox(), Callers()
    batcher = pipelined(model, inbox=inbox)
    batcher.start()
    put_one_behind(batcher, model, inbox, callers, "a", "b")
    callers.start(batcher.close)
    model.wait_for("a", "b")
    model.let_go("all")
    assert callers.finish() == [["a"], ["b"], True]


class LateLook(WatchedInbox):
    """An inbox in which the message of a batch that is back is found before the leader has looked at the batches."""

    def __init__(self) -> None:
        super().__init__()
        self.let_batch_go: Callable[[], None] | None = None
        self._told = threading.Event()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if item is Signal.WAKE:
            self._told.set()

    def drain(self) -> list[Any]:
        if self.let_batch_go is not None:
            let_go, self.let_batch_go = self.let_batch_go, None
            let_go()
            assert self._told.wait(GUARD_S), "nobody says that the batch is back"
        return super().drain()


def test_a_batch_that_comes_back_while_the_leader_reads_its_messages_is_not_missed() -> None:
    model, inbox, callers = Gates(), LateLook(), Callers()
    with pipelined(model, inbox=inbox) as batcher:
        callers.start(lambda: batcher.submit(["a"], HANGING_S))
        model.wait_for("a")
        inbox.wait_until_asked(2)
        inbox.let_batch_go = lambda: model.let_go("all")
        assert batcher.submit(["b"], HANGING_S) == ["b"]
        assert callers.finish() == [["a"]]


class PromptLook(WatchedInbox):
    """An inbox whose message of a batch that is back has been acted upon before whoever sends it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.acted = threading.Event()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if item is Signal.WAKE:
            self.acted.wait(GUARD_S)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.is_armed:
            self.acted.set()
        return super().get(block, timeout)

    is_armed = False


def test_a_leader_that_hears_of_a_batch_finds_it_gone() -> None:
    gates, inbox, callers = Gates(), PromptLook(), Callers()

    def model(rows: list[Any]) -> list[Any]:
        if rows == ["b"]:
            inbox.acted.set()
        return gates(rows)

    with pipelined(model, inbox=inbox) as batcher:
        put_one_behind(batcher, gates, inbox, callers, "a", "b")
        inbox.is_armed = True
        gates.let_go("all")
        assert callers.finish() == [["a"], ["b"]]


def test_the_next_batch_does_not_wait_for_callers_to_be_told() -> None:
    model, inbox, callers = Gates(), WatchedInbox(), Callers()

    class Slow(Listener):
        def on_batch(self, info: BatchInfo, key: Any, waits_s: Any, errors: Any) -> None:
            super().on_batch(info, key, waits_s, errors)
            if len(self.batches) == 1:
                model.wait_for("b")
                model.let_go("all")

    listener = Slow()
    with pipelined(model, inbox=inbox, listener=listener) as batcher:
        put_one_behind(batcher, model, inbox, callers, "a", "b")
        model.let_go("a")
        assert callers.finish() == [["a"], ["b"]]
    assert len(listener.batches) == 2


def test_rows_that_wait_for_a_batch_whose_thread_dies_are_answered() -> None:
    def act(rows: list[Any]) -> list[Any]:
        raise SystemExit

    model, inbox, callers = Gates(act), WatchedInbox(), Callers()
    batcher = pipelined(model, inbox=inbox)
    batcher.start()
    put_one_behind(batcher, model, inbox, callers, "kill", "waits")
    model.let_go("kill")
    assert [type(outcome) for outcome in callers.finish()] == [WorkerDead, WorkerDead]
    assert batcher.close()


class Taught:
    """Arrival order, and a memory of the batches that it was taught."""

    def __init__(self, enough: int) -> None:
        self.sizes: list[int] = []
        self._enough = enough

    def look_ahead(self, limits: Any) -> int:
        return int(limits.max_rows)

    def select(self, rows: Any, limits: Any, passes: int) -> list[int]:
        return list(range(min(len(rows), limits.max_rows)))

    def learn(self, lane: LaneName, rows: int, length: int, seconds: float) -> None:
        self.sizes.append(rows)

    def enough(self, front: Any, limits: Any) -> int:
        return self._enough

    def learnt(self, lane: LaneName) -> list[Any]:
        return []


def test_a_batch_that_queued_behind_another_teaches_nothing_about_times() -> None:
    scheduler, model, callers = Taught(enough=4), Gates(), Callers()
    with pipelined(model, scheduler=scheduler, max_batch_size=4) as batcher:
        callers.start(lambda: batcher.submit(["a"]))
        model.wait_for("a")
        callers.start(lambda: batcher.submit(["b"] * 4))
        model.wait_for("a", "b")
        model.let_go("all")
        assert callers.finish() == [["a"], ["b"] * 4]
        batcher.submit(["c"] * 3)
    told = [*scheduler.sizes, *(rows for _, rows, _, _ in batcher._worker.delivery.lessons)]
    assert sorted(told) == [1, 3]


def test_rows_that_a_scheduler_finds_enough_need_no_more_company() -> None:
    model, callers = Gates(), Callers()
    with pipelined(model, scheduler=Taught(enough=2), max_batch_size=4) as batcher:
        callers.start(lambda: batcher.submit(["a"]))
        model.wait_for("a")
        callers.start(lambda: batcher.submit(["b", "c"]))
        model.wait_for("a", "b")
        model.let_go("all")
        assert callers.finish() == [["a"], ["b", "c"]]


@pytest.mark.parametrize("instances", [2, 3])
def test_many_callers_get_their_own_rows_from_a_card_that_runs_one_batch_at_a_time(instances: int) -> None:
    card = threading.Lock()

    def model(rows: list[Any], key: Any) -> list[Any]:
        with card:
            return [(row, key) for row in rows]

    def client(number: int) -> bool:
        rng, key = random.Random(number), number % 3
        for turn in range(30):
            rows = [(number, turn, index) for index in range(rng.choice([1, 1, 2, 20]))]
            assert batcher.submit(rows, HANGING_S, key=key) == [(row, key) for row in rows]
        return True

    with pipelined(model, instances=instances, max_batch_size=8, max_queue_size=4096) as batcher:
        assert all_at_once([lambda number=number: client(number) for number in range(48)]) == [True] * 48
