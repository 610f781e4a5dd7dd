"""One bad row costs nobody else an answer, and finding it costs a bounded number of model runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from support.core import Core
from support.models import Call, fails_on

from service.batching.admission import WorkerState
from service.batching.faults import FaultKind
from service.batching.isolation import FatalModelError
from service.batching.tickets import FlushReason
from service.errors import ModelFailed, OutOfMemory, OutputCountMismatch, WorkerDead


def test_32_good_rows_cost_exactly_one_run() -> None:
    core = Core(max_batch_size=32)
    tickets = [core.submit([row]) for row in range(32)]
    core.run()
    assert core.model.sizes == [32]
    assert [core.outcome(ticket) for ticket in tickets] == [[row] for row in range(32)]


@pytest.mark.parametrize("culprit", range(32))
def test_one_culprit_among_32_is_found_in_at_most_11_runs_and_costs_no_other_its_answer(culprit: int) -> None:
    core = Core(max_batch_size=32, before=fails_on(culprit))
    tickets = [core.submit([row]) for row in range(32)]
    core.run()
    assert len(core.model.calls) <= 11
    for row, ticket in enumerate(tickets):
        if row == culprit:
            error = core.outcome(ticket)
            assert isinstance(error, ModelFailed)
            assert isinstance(error.__cause__, ValueError)
        else:
            assert core.outcome(ticket) == [row]
    assert core.listener.batches[0].runs == len(core.model.calls)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 31, 32])
def test_when_every_row_is_bad_the_runs_stay_under_twice_the_rows(size: int) -> None:
    core = Core(max_batch_size=32, latency_s=1.0, before=fails_on(*range(size)))
    tickets = [core.submit([row]) for row in range(size)]
    core.run()
    assert len(core.model.calls) == 2 * size - 1
    errors = [core.outcome(ticket) for ticket in tickets]
    assert all(isinstance(error, ModelFailed) for error in errors)
    assert len({id(error) for error in errors}) == size
    assert len(core.listener.errors) == size


def test_several_culprits_are_all_found() -> None:
    core = Core(max_batch_size=32, before=fails_on(3, 17, 18))
    tickets = [core.submit([row]) for row in range(32)]
    core.run()
    failed = [row for row, ticket in enumerate(tickets) if isinstance(core.outcome(ticket), ModelFailed)]
    assert failed == [3, 17, 18]


def test_a_request_hears_which_of_its_rows_failed() -> None:
    core = Core(max_batch_size=8, before=fails_on("bad", "worse"))
    ticket = core.submit(["ok", "bad", "ok", "worse"])
    other = core.submit(["fine"] * 4)
    core.run()
    assert sorted(ticket.failed_rows) == [1, 3]
    assert core.outcome(other) == ["fine"] * 4


def test_the_other_rows_of_a_request_that_has_failed_need_not_run() -> None:
    core = Core(max_batch_size=2, before=fails_on("bad"))
    core.submit(["bad", "a", "b", "c", "d", "e"])
    core.run()
    assert set(core.model.seen) == {"bad", "a"}
    core.assert_at_rest()


def test_rows_that_nobody_waits_for_any_more_are_left_out_of_the_retries() -> None:
    core = Core(max_batch_size=4, service_s=4.0, before=fails_on("bad"))
    core.submit_at(0.0, ["bad"], timeout_s=100.0)
    for row in ("a", "b", "c"):
        core.submit_at(0.0, [row], timeout_s=2.0)
    core.run()
    assert core.model.calls[0].rows == ["bad", "a", "b", "c"]
    assert {row for call in core.model.calls[1:] for row in call.rows} == {"bad"}


def test_a_row_left_out_of_the_retries_is_never_answered_with_nothing() -> None:
    core = Core(max_batch_size=2, service_s=4.0, before=fails_on("bad"))
    core.submit(["bad"])
    late = core.submit(["late"])
    late.deadline = 4.0  # passes during the first run, but the waiter has not noticed yet
    answered_early: list[bool] = []
    core.clock.at(50.0, lambda: answered_early.append(late.done.is_set()))
    core.run()
    assert "late" not in [row for call in core.model.calls[1:] for row in call.rows]
    assert answered_early == [False]
    assert core.outcome(late) is None


def test_isolation_ends_when_everybody_has_gone() -> None:
    core = Core(max_batch_size=32, service_s=1.0, before=fails_on(*range(32)))
    for row in range(32):
        core.submit_at(0.0, [row], timeout_s=5.5)
    core.run()
    assert len(core.model.calls) <= 6
    core.assert_at_rest()


WRONG: list[Callable[[list[Any]], Any]] = [
    lambda rows: rows[:-1],
    lambda rows: [*rows, "extra"],
    lambda rows: [],
    lambda rows: None,
    lambda rows: 7.0,
    lambda rows: "abcd",
    lambda rows: b"abcd",
    lambda rows: dict.fromkeys(rows, 1),
    lambda rows: set(rows),
    lambda rows: (row for row in rows),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_number_of_results_fails_the_batch_without_a_retry(wrong: Callable[[list[Any]], Any]) -> None:
    calls: list[int] = []

    def model(key: object, rows: list[Any]) -> Any:
        calls.append(len(rows))
        return wrong(rows) if len(calls) == 1 else rows

    core = Core(model=model)
    tickets = [core.submit([row]) for row in range(4)]
    core.submit_at(50.0, ["next"])
    core.run()
    errors = [core.outcome(ticket) for ticket in tickets]
    assert all(isinstance(error, OutputCountMismatch) and "output count" in str(error) for error in errors)
    assert len({id(error) for error in errors}) == 4
    assert calls == [4, 1]
    assert core.outcome(core.tickets[-1]) == ["next"]


class Liar:
    """Claims one length and yields another."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Any:
        return iter(self.items[:-1])


def test_results_are_counted_by_what_they_yield() -> None:
    core = Core(model=lambda key, rows: Liar(rows))
    tickets = [core.submit([row]) for row in range(4)]
    core.run()
    assert all(isinstance(core.outcome(ticket), OutputCountMismatch) for ticket in tickets)
    assert core.admission.state is WorkerState.STOPPED


def fits(limit: int) -> Callable[[Call], None]:
    def check(call: Call) -> None:
        if len(call.rows) > limit:
            raise MemoryError(f"{len(call.rows)} rows do not fit")

    return check


def test_out_of_memory_splits_the_batch_and_lowers_the_ceiling() -> None:
    core = Core(max_batch_size=16, before=fits(5))
    tickets = [core.submit([row]) for row in range(16)]
    core.run()
    assert [core.outcome(ticket) for ticket in tickets] == [[row] for row in range(16)]
    assert core.worker.effective_max_batch_size == 4
    assert {kind for kind, _ in core.listener.splits} == {FaultKind.OUT_OF_MEMORY}


def test_the_lowered_ceiling_is_raised_again_row_by_row_up_to_the_setting() -> None:
    room = 5
    core = Core(max_batch_size=8, latency_s=1.0, before=lambda call: fits(room)(call))
    core.submit(list(range(8)))
    core.submit_at(10.0, list(range(900)))

    def memory_comes_back() -> None:
        nonlocal room
        room = 100

    core.clock.at(9.5, memory_comes_back)
    core.run()
    sizes = core.model.sizes[3:]
    assert sizes[0] == 4
    assert all(after - before <= 1 for before, after in itertools.pairwise(sizes))
    assert max(sizes) == 8
    assert core.worker.effective_max_batch_size == 8


def test_a_single_row_that_does_not_fit_fails_alone() -> None:
    def check(call: Call) -> None:
        if "giant" in call.rows:
            raise MemoryError

    core = Core(max_batch_size=4, before=check)
    giant = core.submit(["giant"])
    others = [core.submit([row]) for row in range(3)]
    core.run()
    assert isinstance(core.outcome(giant), OutOfMemory)
    assert [core.outcome(ticket) for ticket in others] == [[0], [1], [2]]


def test_a_lost_device_ends_the_worker_and_everyone_is_told_at_once() -> None:
    def check(call: Call) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    core = Core(max_batch_size=2, before=check)
    tickets = [core.submit([row]) for row in range(6)]
    core.run()
    assert len(core.model.calls) == 1
    assert all(isinstance(core.outcome(ticket), WorkerDead) for ticket in tickets)
    assert core.admission.state is WorkerState.DEAD
    assert isinstance(core.listener.deaths[0], FatalModelError)
    assert core.admission.queued == 0


def test_the_rest_of_a_request_that_failed_makes_no_batch_look_full():
    def fail(call: Call) -> None:
        if "bad" in call.rows:
            if len(call.rows) == 4:
                core.submit(["alone"])
            raise ValueError

    core = Core(before=fail, max_batch_size=4, latency_s=8.0)
    core.submit(["bad", *range(7)])
    core.run()
    assert core.model.calls[-1].rows == ["alone"]
    assert core.listener.reasons == [FlushReason.SIZE, FlushReason.LATENCY]
