"""What ends the worker, what does not, and that everyone is answered either way."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from support.core import Core, Listener
from support.models import Call, fails_on

from service.batching.admission import WorkerState
from service.batching.policy import BatchLimits
from service.batching.tickets import Row
from service.batching.worker import StartFailed
from service.errors import SchedulerFailed, WorkerDead


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_is_no_exception_ends_the_worker_and_everyone_is_answered(end: type[BaseException]) -> None:
    def check(call: Call) -> None:
        raise end

    core = Core(max_batch_size=2, before=check)
    tickets = [core.submit([row]) for row in range(5)]
    core.run()
    errors = [core.outcome(ticket) for ticket in tickets]
    assert all(isinstance(error, WorkerDead) and isinstance(error.__cause__, end) for error in errors)
    assert core.admission.state is WorkerState.DEAD
    assert isinstance(core.listener.deaths[0], end)
    assert (core.admission.queued, core.worker.instances.busy_since) == (0, None)


def test_a_request_that_had_half_its_answer_is_told_too_when_the_worker_ends() -> None:
    def check(call: Call) -> None:
        if 4 in call.rows:
            raise SystemExit

    core = Core(max_batch_size=2, before=check)
    ticket = core.submit(list(range(6)))
    core.run()
    assert core.model.sizes == [2, 2, 2]
    assert isinstance(core.outcome(ticket), WorkerDead)


def test_a_start_that_fails_ends_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    def start() -> None:
        raise StartFailed

    core = Core(on_start=start)
    ticket = core.submit([1])
    core.run()
    assert isinstance(core.outcome(ticket), WorkerDead)
    assert isinstance(core.listener.deaths[0], StartFailed)
    (record,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert record.exc_info is None  # whoever raised it has told the log


class Grumpy(Listener):
    """Raises at everything it hears."""

    def on_batch(self, *news: Any) -> None:
        super().on_batch(*news)
        raise OSError("the disk of the counters is full")

    def on_split(self, *news: Any) -> None:
        super().on_split(*news)
        raise OSError("the disk of the counters is full")

    def on_death(self, *news: Any) -> None:
        super().on_death(*news)
        raise OSError("the disk of the counters is full")


def test_a_listener_that_raises_costs_nobody_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    core = Core(listener=Grumpy(), before=fails_on("bad"), latency_s=1.0)
    tickets = [core.submit([row]) for row in ("a", "bad", "b")]
    core.run()
    assert core.outcome(tickets[0]) == ["a"]
    assert core.outcome(tickets[2]) == ["b"]
    assert core.admission.state is WorkerState.STOPPED
    assert len(core.listener.batches) == 1
    assert core.listener.splits
    assert "a listener of the inference worker failed" in caplog.text


def test_a_listener_that_raises_at_the_end_does_not_hide_it() -> None:
    def check(call: Call) -> None:
        raise SystemExit

    core = Core(listener=Grumpy(), before=check)
    ticket = core.submit([1])
    core.run()
    assert isinstance(core.outcome(ticket), WorkerDead)
    assert len(core.listener.deaths) == 1


class Answers:
    """A scheduler that gives what it is told, whenever a row named "cursed" is at the front."""

    def __init__(self, answer: Any, look_ahead: Any = 8) -> None:
        self._answer = answer
        self._look_ahead = look_ahead

    def look_ahead(self, limits: BatchLimits) -> int:
        return self._look_ahead

    def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
        if rows[0].payload != "cursed":
            return list(range(min(len(rows), limits.max_rows)))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("no"),
        [],
        None,
        [0, 0],
        [-1],
        [0, 99],
        [0, 1, 2],
        ["0"],
        7,
        iter([0]),
    ],
)
def test_a_scheduler_that_fails_costs_only_the_front_rows_their_answer(answer: Any) -> None:
    core = Core(max_batch_size=2, latency_s=1.0, scheduler=Answers(answer))
    front = [core.submit(["cursed"]), core.submit(["neighbour"])]
    behind = [core.submit([row]) for row in ("a", "b", "c")]
    core.run()
    assert all(isinstance(core.outcome(ticket), SchedulerFailed) for ticket in front)
    assert [core.outcome(ticket) for ticket in behind] == [["a"], ["b"], ["c"]]
    assert core.admission.state is WorkerState.STOPPED
    core.assert_at_rest()


def test_the_log_names_the_requests_that_a_scheduler_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    core = Core(max_batch_size=2, latency_s=1.0, scheduler=Answers([0, 99]))
    for name in ("first", "second"):
        core.submit(["cursed"]).request_id = name
    core.run()
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "the scheduler failed; 2 rows get an error, of request first, second"


def test_a_scheduler_cannot_exceed_the_token_budget() -> None:
    core = Core(max_batch_size=4, max_batch_tokens=10, latency_s=1.0, scheduler=Answers([0, 1]))
    cursed = core.submit(["cursed", "big"], lengths=[6, 6])
    core.run()
    assert isinstance(core.outcome(cursed), SchedulerFailed)


def test_a_scheduler_that_asks_for_nonsense_fails_the_front_rows_and_not_the_worker() -> None:
    core = Core(max_batch_size=2, scheduler=Answers([0], look_ahead=None))
    tickets = [core.submit([row]) for row in range(4)]
    core.run()
    assert all(isinstance(core.outcome(ticket), SchedulerFailed) for ticket in tickets)
    core.assert_at_rest()


def test_a_scheduler_is_given_rows_that_it_cannot_rearrange() -> None:
    given: list[Any] = []

    class Looks(Answers):
        def select(self, rows: Sequence[Row], limits: BatchLimits, passes: int) -> list[int]:
            given.append(rows)
            return [0]

    core = Core(scheduler=Looks(None))
    core.submit([1])
    core.run()
    assert isinstance(given[0], tuple)


def test_health_figures_follow_the_worker() -> None:
    seen: list[float | None] = []
    core = Core(service_s=4.0, before=lambda call: seen.append(core.worker.instances.busy_since))
    core.submit(list(range(4)))
    core.run()
    assert seen == [0.0]
    assert (core.worker.instances.busy_since, core.worker.delivery.last_batch_at, core.worker.row_s) == (None, 4.0, 1.0)


def test_each_row_can_tell_how_it_was_served() -> None:
    core = Core(max_batch_size=2, latency_s=8.0, service_s=4.0)
    core.submit_at(1.0, ["a", "b", "c"], lengths=[5, 3, 4])
    core.run()
    infos = core.tickets[0].batches
    assert [(info.batch_id, info.size, info.reason, info.started_at, info.model_s, info.runs) for info in infos] == [
        (1, 2, "size", 1.0, 4.0, 1),
        (1, 2, "size", 1.0, 4.0, 1),
        (2, 1, "latency", 9.0, 4.0, 1),
    ]
    assert [(info.tokens, info.padded_length, info.padding_tokens) for info in (infos[0], infos[2])] == [
        (8, 5, 2),
        (4, 4, 0),
    ]
    assert core.listener.waits_s == [0.0, 0.0, 8.0]
