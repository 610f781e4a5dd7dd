"""Several worker threads that serve one queue: who is answered, by which of them, and with what."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from support.callers import Callers, all_at_once
from support.core import Listener
from support.gates import AskedInbox, Gates, two
from support.models import GUARD_S
from support.parking import GRACE_S, CountingInbox, Parking, RefittingInbox

from service.batching.batcher import ThreadedBatcher
from service.batching.ceiling import RAISE_AFTER, Ceiling
from service.batching.faults import FaultKind
from service.batching.instances import instance
from service.batching.tickets import LaneName
from service.errors import DeadlineExceeded, ModelFailed

# A caller that nobody answers finds out after this long.
HANGING_S = 3.0


def test_two_batches_are_in_the_model_at_the_same_time_each_in_a_thread_of_its_own() -> None:
    model, callers = Gates(), Callers()
    with two(model) as batcher:
        callers.start(lambda: batcher.submit(["a"]))
        callers.start(lambda: batcher.submit(["b"]))
        model.wait_for("a", "b")
        assert sorted(model.inside.values()) == [0, 1]
        assert (batcher.status().instances, batcher.status().busy_instances) == (2, 2)
        model.let_go("all")
        assert callers.finish() == [["a"], ["b"]]
        assert batcher.status().busy_instances == 0


def test_each_batch_tells_which_thread_ran_it() -> None:
    model, callers = Gates(), Callers()
    with two(model) as batcher:
        callers.start(lambda: batcher.ask(["a"]).batches[0].instance)
        callers.start(lambda: batcher.ask(["b"]).batches[0].instance)
        model.wait_for("a", "b")
        ran_by = [model.inside["a"], model.inside["b"]]
        model.let_go("all")
        assert callers.finish() == ran_by
    assert sorted(ran_by) == [0, 1]


def test_rows_that_wait_are_shared_among_all_threads_that_have_nothing_to_do() -> None:
    sizes: list[int] = []
    both = threading.Barrier(2, timeout=GUARD_S)

    def model(rows: list[Any]) -> list[Any]:
        sizes.append(len(rows))
        both.wait()  # until the other thread is in the model too
        return rows

    with two(model, max_batch_size=8, max_batch_latency_s=0.05) as batcher:
        assert batcher.submit(list(range(7))) == list(range(7))
    assert sorted(sizes) == [3, 4]


def test_a_scheduler_is_told_what_the_share_of_a_thread_is_of_all_rows() -> None:
    shares: list[tuple[int, int | None]] = []

    class Asked(Told):
        def look_ahead(self, limits: Any) -> int:
            return 8

        def select(self, rows: Any, limits: Any, passes: int) -> list[int]:
            shares.append((len(rows), limits.share))
            return list(range(min(len(rows), limits.max_rows)))

    model, inbox, callers = Gates(), AskedInbox(), Callers()
    with two(model, scheduler=Asked(), inbox=inbox, max_batch_size=8, max_batch_latency_s=0.0) as batcher:
        callers.start(lambda: batcher.submit(["a"]))
        model.wait_for("a")
        callers.start(lambda: batcher.submit(["b", "c", "d", "e"]))
        model.wait_for("b")
        model.let_go("all")
        callers.finish()
    assert shares == [(1, 1), (4, 3)]


def test_one_instance_is_one_thread_as_ever() -> None:
    before = set(threading.enumerate())
    model, inbox, callers = Gates(), CountingInbox(), Callers()
    with ThreadedBatcher(model, max_batch_size=1, max_batch_latency_s=0.0, inbox=inbox) as batcher:
        assert [thread.name for thread in set(threading.enumerate()) - before] == ["jitney-worker"]
        for row in "abc":
            callers.start(lambda row=row: batcher.submit([row]))
        inbox.wait_for_requests(3)
        model.wait_for_any()
        assert not threading.Event().wait(GRACE_S / 3)
        assert len(model.inside) == 1
        model.let_go("all")
        callers.finish()


def test_each_caller_gets_its_own_rows_and_no_copy_is_called_by_two_threads() -> None:
    taken = [threading.Lock(), threading.Lock()]
    threads: list[set[int]] = [set(), set()]

    def model(rows: list[Any]) -> list[Any]:
        assert taken[instance()].acquire(blocking=False), "a copy is called twice at the same time"
        threads[instance()].add(threading.get_ident())
        time.sleep(0)  # lets another thread in
        taken[instance()].release()
        return [(row, "own") for row in rows]

    def client(number: int) -> bool:
        rng = random.Random(number)
        for turn in range(30):
            rows = [(number, turn, index) for index in range(rng.choice([1, 1, 2, 20]))]
            assert batcher.submit(rows) == [(row, "own") for row in rows]
        return True

    with two(model, max_batch_size=8, max_batch_latency_s=0.001, max_queue_size=4096) as batcher:
        assert all_at_once([lambda number=number: client(number) for number in range(64)]) == [True] * 64
    assert [len(ids) for ids in threads] == [1, 1]
    assert threads[0].isdisjoint(threads[1])


def test_the_rows_of_one_request_are_answered_by_both_and_put_together_again() -> None:
    model, callers = Gates(lambda rows: [row * 10 for row in rows]), Callers()
    with two(model, max_batch_size=2) as batcher:
        callers.start(lambda: batcher.ask([1, 2, 3, 4]))
        model.wait_for(1, 3)
        model.let_go(3)
        assert not threading.Event().wait(0.01)
        assert callers.outcomes == {}, "half of the answer is none"
        model.let_go(1)
        (answer,) = callers.finish()
    assert answer.results == [10, 20, 30, 40]
    assert answer.batches[0] is answer.batches[1]
    assert answer.batches[0] is not answer.batches[3]


class SlowToCount(int):
    """What is missing of a request; the first thread to count stops before it writes down the result."""

    parking: Parking

    def __sub__(self, other: int) -> int:
        result = int(self) - other
        if not self.parking.parked.is_set():
            self.parking.stop_here()
        return result


def test_what_is_missing_of_a_request_is_counted_right_when_its_batches_end_at_the_same_time() -> None:
    parking, model, callers = Parking(), Gates(), Callers()

    def refit(ticket: Any) -> None:
        ticket.unanswered = SlowToCount(ticket.unanswered)
        ticket.unanswered.parking = parking

    with two(model, inbox=RefittingInbox(refit)) as batcher:
        callers.start(lambda: batcher.submit(["a", "b"], HANGING_S))
        model.wait_for("a", "b")
        model.let_go("all")
        assert parking.parked.wait(GUARD_S)
        assert not threading.Event().wait(GRACE_S)  # the other must not count meanwhile
        parking.go.set()
        assert callers.finish() == [["a", "b"]]


class SlowToCompare(int):
    """Batches that went well; the first thread that finds that they are enough stops before it acts."""

    parking: Parking

    def __add__(self, other: int) -> SlowToCompare:
        result = SlowToCompare(int(self) + other)
        result.parking = self.parking
        return result

    def __ge__(self, other: int) -> bool:
        if not self.parking.parked.is_set():
            self.parking.stop_here()
        return int(self) >= other


def test_two_batches_that_end_at_once_never_raise_the_ceiling_above_the_limit() -> None:
    ceiling, parking, callers = Ceiling(2), Parking(), Callers()
    ceiling.lower(2)
    ceiling._good = SlowToCompare(RAISE_AFTER - 1)
    ceiling._good.parking = parking
    callers.start(lambda: ceiling.succeeded(1))
    assert parking.parked.wait(GUARD_S)
    callers.start(lambda: ceiling.succeeded(1))
    assert not threading.Event().wait(GRACE_S)
    parking.go.set()
    callers.finish()
    assert ceiling.rows == 2


def test_a_request_that_fails_in_one_batch_is_told_at_once_and_the_other_batch_harms_nobody() -> None:
    def act(rows: list[Any]) -> list[Any]:
        if "bad" in rows:
            raise ValueError("bad")
        return list(rows)

    model, callers = Gates(act), Callers()
    with two(model) as batcher:
        callers.start(lambda: batcher.submit(["slow", "bad", "never"]))
        model.wait_for("slow", "bad")
        model.let_go("bad")
        (outcome,) = callers.finish()
        assert isinstance(outcome, ModelFailed)
        assert outcome.rows == (1,)
        assert batcher.status().queued == 0
        model.let_go("all")
        assert batcher.submit(["next"]) == ["next"]
    assert ["never"] not in model.seen


def test_a_batch_that_is_split_keeps_no_other_batch_and_no_other_caller_from_its_answer() -> None:
    def act(rows: list[Any]) -> list[Any]:
        if "poison" in rows:
            raise ValueError("poison")
        return list(rows)

    model, inbox, callers, listener = Gates(act), CountingInbox(), Callers(), Listener()
    with two(model, max_batch_size=4, inbox=inbox, listener=listener) as batcher:
        callers.start(lambda: batcher.submit(["first"]))
        model.wait_for("first")
        callers.start(lambda: batcher.submit(["second"]))
        model.wait_for("first", "second")
        for row in ("a", "poison", "b", "c"):
            callers.start(lambda row=row: batcher.submit([row]))
        inbox.wait_for_requests(6)
        model.let_go("all")
        outcomes = callers.finish()
    assert [outcome for outcome in outcomes if not isinstance(outcome, ModelFailed)] == [
        ["first"],
        ["second"],
        ["a"],
        ["b"],
        ["c"],
    ]
    assert isinstance(outcomes[3], ModelFailed)


def test_memory_that_one_instance_lacks_lowers_the_ceiling_for_both() -> None:
    def act(rows: list[Any]) -> list[Any]:
        if len(rows) > 2:
            raise MemoryError
        return list(rows)

    model, inbox, callers, listener = Gates(act), CountingInbox(), Callers(), Listener()
    with two(model, max_batch_size=8, inbox=inbox, listener=listener) as batcher:
        callers.start(lambda: batcher.submit(["a"]))
        model.wait_for("a")
        callers.start(lambda: batcher.submit(["b"]))
        model.wait_for("a", "b")
        callers.start(lambda: batcher.submit(list(range(8))))
        inbox.wait_for_requests(3)
        model.let_go("all")
        assert callers.finish() == [["a"], ["b"], list(range(8))]
        assert batcher.effective_max_batch_size == 2
    assert {kind for kind, _ in listener.splits} == {FaultKind.OUT_OF_MEMORY}


def test_rows_whose_deadline_has_passed_reach_neither_thread() -> None:
    model, callers = Gates(), Callers()
    with two(model) as batcher:
        for row in "ab":
            callers.start(lambda row=row: batcher.submit([row]))
        model.wait_for("a", "b")
        with pytest.raises(DeadlineExceeded):
            batcher.submit(["late", "later"], 0.05)
        assert batcher.status().queued == 0
        model.let_go("all")
        callers.finish()
        assert batcher.submit(["next"]) == ["next"]
    assert model.seen == [["a"], ["b"], ["next"]]


def test_a_caller_that_has_left_both_of_its_batches_is_forgotten() -> None:
    model = Gates()
    with two(model) as batcher:
        with pytest.raises(DeadlineExceeded):
            batcher.submit(["a", "b"], 0.1)
        model.wait_for("a", "b")
        model.let_go("all")
        assert batcher.submit(["next"]) == ["next"]
        assert "queued=0 inside=0" in repr(batcher)


def test_a_scheduler_is_asked_and_taught_by_one_thread_at_a_time() -> None:
    inside = threading.Lock()
    taught: list[int] = []

    class Watched:
        def look_ahead(self, limits: Any) -> int:
            return 8

        def select(self, rows: Any, limits: Any, passes: int) -> list[int]:
            return self.alone(lambda: list(range(min(len(rows), limits.max_rows))))

        def learn(self, lane: LaneName, rows: int, length: int, seconds: float) -> None:
            self.alone(lambda: taught.append(rows))

        def enough(self, front: Any, limits: Any) -> int:
            return self.alone(lambda: limits.max_rows)

        def learnt(self, lane: LaneName) -> list[Any]:
            return []

        def alone(self, act: Callable[[], Any]) -> Any:
            assert inside.acquire(blocking=False), "two threads at a time"
            time.sleep(0.0002)
            inside.release()
            return act()

    batches: Listener = Listener()
    with two(lambda rows: list(rows), max_batch_size=2, scheduler=Watched(), listener=batches) as batcher:
        outcomes = all_at_once([lambda n=n: [batcher.submit([n, i]) for i in range(20)] for n in range(8)])
        assert all(isinstance(outcome, list) for outcome in outcomes), outcomes
    assert sorted(taught) == sorted(info.size for info in batches.batches)


class Told:
    """A scheduler that takes rows as they come, and remembers what it is asked and taught."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.is_taught = threading.Event()

    def look_ahead(self, limits: Any) -> int:
        return 1

    def select(self, rows: Any, limits: Any, passes: int) -> list[int]:
        self.heard.append(f"choose {rows[0].payload}")
        return [0]

    def learn(self, lane: LaneName, rows: int, length: int, seconds: float) -> None:
        self.heard.append("learn")
        self.is_taught.set()

    def enough(self, front: Any, limits: Any) -> int:
        return 1

    def learnt(self, lane: LaneName) -> list[Any]:
        return []


@pytest.mark.parametrize("instances", [1, 2])
def test_a_scheduler_hears_of_a_batch_though_none_follows(instances: int) -> None:
    scheduler = Told()
    with two(lambda rows: list(rows), instances=instances, scheduler=scheduler) as batcher:
        batcher.submit(["a"])
        if instances == 2:  # the thread that leads waits for a message; the other one teaches when it leads again
            batcher.submit(["b"])
        assert scheduler.is_taught.wait(GUARD_S)


def test_a_scheduler_knows_of_batches_that_ended_while_the_leader_waited_before_it_chooses() -> None:
    scheduler, model, inbox, callers = Told(), Gates(), AskedInbox(), Callers()
    with two(model, scheduler=scheduler, inbox=inbox) as batcher:
        callers.start(lambda: batcher.submit(["a"]))
        model.wait_for("a")
        for _ in range(2):  # the one that has the batch, and the one that leads now
            assert inbox.asked.acquire(timeout=GUARD_S)
        model.let_go("a", "b")
        deadline = time.monotonic() + GUARD_S
        while not batcher._worker.delivery.lessons and time.monotonic() < deadline:
            time.sleep(0.005)
        assert batcher.submit(["b"]) == ["b"]
        callers.finish()
    assert scheduler.heard[:3] == ["choose a", "learn", "choose b"]


def test_a_backlog_is_expected_to_be_worked_off_by_all_threads() -> None:
    seconds: dict[int, float] = {}
    for instances in (1, 2):
        with ThreadedBatcher(
            lambda rows: time.sleep(0.05) or list(rows), instances=instances, max_batch_size=1, max_batch_latency_s=0.0
        ) as batcher:
            batcher.submit([1])
            seconds[instances] = batcher.retry_after_s(100)
    assert seconds[2] < 0.75 * seconds[1]


def test_the_oldest_of_the_batches_that_run_tells_for_how_long_the_model_is_busy() -> None:
    now = [0.0]
    model, callers = Gates(), Callers()
    with two(model, clock=lambda: now[0]) as batcher:
        callers.start(lambda: batcher.submit(["a"], GUARD_S))
        model.wait_for("a")
        now[0] = 3.0
        callers.start(lambda: batcher.submit(["b"], GUARD_S))
        model.wait_for("a", "b")
        now[0] = 5.0
        assert batcher.status().busy_s == 5.0
        model.let_go("a")
        while len(callers.outcomes) < 1:
            time.sleep(0.005)
        assert batcher.status().busy_s == 2.0
        model.let_go("all")
        callers.finish()


def test_an_answer_is_freed_with_its_caller_also_where_a_batch_failed() -> None:
    class Payload:
        pass

    def model(rows: list[Any]) -> list[Any]:
        raise ValueError("no")

    gc.disable()
    try:
        with two(model) as batcher:
            payload = Payload()
            gone = weakref.ref(payload)
            with pytest.raises(ModelFailed):
                batcher.submit([payload])
            del payload
            with pytest.raises(ModelFailed):
                batcher.submit(["next"])
            with pytest.raises(ModelFailed):
                batcher.submit(["and the next"])
            assert gone() is None
    finally:
        gc.enable()
