"""When a batch leaves and why, with no thread and no waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.core import Core
from support.inbox import FakeInbox

from service.batching.admission import Signal
from service.batching.policy import UNREAD_WAIT_S, BatchPolicy
from service.batching.tickets import FlushReason


def test_a_full_batch_leaves_at_once() -> None:
    core = Core(max_batch_size=4)
    for row in range(4):
        core.submit_at(1.0, [row])
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(1.0, [0, 1, 2, 3])]
    assert core.listener.reasons == [FlushReason.SIZE]


def test_a_lone_row_leaves_when_its_latency_is_over() -> None:
    core = Core(latency_s=8.0)
    core.submit_at(3.0, ["lone"])
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(11.0, ["lone"])]
    assert core.listener.reasons == [FlushReason.LATENCY]


def test_later_arrivals_do_not_restart_the_wait() -> None:
    core = Core(max_batch_size=100, latency_s=8.0)
    for second in range(24):
        core.submit_at(float(second), [second])
    core.run()
    assert [call.at for call in core.model.calls] == [8.0, 17.0, 26.0]
    assert [call.rows[0] for call in core.model.calls] == [0, 9, 18]


def test_the_wait_counts_from_the_queue_and_not_from_the_workers_look() -> None:
    core = Core(max_batch_size=2, latency_s=8.0, service_s=6.0)
    core.submit_at(0.0, ["a", "b"])
    core.submit_at(1.0, ["c"])  # while the worker is busy until 6
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(0.0, ["a", "b"]), (9.0, ["c"])]


def test_a_row_that_came_due_behind_a_busy_worker_leaves_as_soon_as_the_worker_is_free() -> None:
    core = Core(max_batch_size=2, latency_s=8.0, service_s=20.0)
    core.submit_at(0.0, ["a", "b"])
    core.submit_at(1.0, ["c"])
    core.run()
    assert core.model.calls[1].at == 20.0


def test_a_backlog_goes_out_full_although_its_first_rows_are_long_overdue() -> None:
    core = Core(max_batch_size=4, latency_s=1.0, service_s=16.0)
    core.submit_at(0.0, [0, 1, 2, 3])
    for moment in range(1, 11):
        core.submit_at(float(moment), [10 + moment])
    core.run()
    assert core.model.sizes == [4, 4, 4, 2]


def test_waits_are_never_negative_nor_longer_than_the_bound() -> None:
    core = Core(max_batch_size=4, latency_s=1e9, service_s=0.5)
    core.submit_at(0.0, [1], timeout_s=500.0)
    core.run()
    assert core.inbox.waits
    assert all(0 < wait <= 60.0 for wait in core.inbox.waits)
    assert core.model.calls == []  # the caller left long before the latency was over


def test_the_token_budget_lets_a_batch_leave_before_it_is_full() -> None:
    core = Core(max_batch_size=32, max_batch_tokens=100, latency_s=8.0)
    core.submit_at(1.0, ["a", "b", "c", "d"], lengths=[20, 20, 30, 10])
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(1.0, ["a", "b", "c"]), (9.0, ["d"])]
    assert core.listener.reasons == [FlushReason.TOKENS, FlushReason.LATENCY]


def test_rows_within_the_token_budget_wait_for_company() -> None:
    core = Core(max_batch_size=32, max_batch_tokens=100, latency_s=8.0)
    core.submit_at(1.0, ["a", "b"], lengths=[33, 33])
    core.submit_at(2.0, ["c"], lengths=[33])
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(9.0, ["a", "b", "c"])]


def test_a_row_longer_than_the_budget_runs_alone() -> None:
    core = Core(max_batch_size=32, max_batch_tokens=100, latency_s=8.0)
    core.submit_at(1.0, ["short", "giant", "brief"], lengths=[5, 500, 5])
    core.run()
    assert [call.rows for call in core.model.calls] == [["short"], ["giant"], ["brief"]]


def test_when_the_service_stops_nothing_waits_for_company() -> None:
    core = Core(max_batch_size=4, latency_s=8.0)
    core.submit_at(1.0, ["a"])
    core.clock.at(2.0, lambda: core.inbox.put(Signal.STOP))
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(2.0, ["a"])]
    assert core.listener.reasons == [FlushReason.DRAIN]
    core.assert_at_rest()


def test_stopping_still_sends_full_batches_first() -> None:
    core = Core(max_batch_size=4, latency_s=8.0)
    core.submit(list(range(10)))
    core.inbox.put(Signal.STOP)
    core.run()
    assert core.model.sizes == [4, 4, 2]
    assert core.listener.reasons == [FlushReason.SIZE, FlushReason.SIZE, FlushReason.DRAIN]


def test_eager_leaves_as_soon_as_nobody_is_on_the_way() -> None:
    core = Core(policy=BatchPolicy.EAGER)
    core.submit_at(1.0, ["a"])
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(1.0, ["a"])]
    assert core.listener.reasons == [FlushReason.IDLE]


def test_eager_takes_all_that_queued_while_the_worker_was_busy() -> None:
    core = Core(policy=BatchPolicy.EAGER, max_batch_size=8, service_s=4.0)
    for moment in range(5):
        core.submit_at(float(moment), [moment])
    core.run()
    assert [call.rows for call in core.model.calls] == [[0], [1, 2, 3, 4]]


def test_eager_waits_for_a_request_that_is_being_prepared() -> None:
    core = Core(policy=BatchPolicy.EAGER)
    arrival = core.admission.announce()
    core.submit_at(1.0, ["a"])
    core.submit_at(3.0, ["b"], arrival=arrival)
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(3.0, ["a", "b"])]
    assert core.admission.on_the_way == 0


def test_eager_stops_waiting_when_the_prepared_request_does_not_come() -> None:
    core = Core(policy=BatchPolicy.EAGER)
    arrival = core.admission.announce()
    core.submit_at(1.0, ["a"])
    core.clock.at(3.0, arrival.release)
    core.run()
    assert [call.at for call in core.model.calls] == [3.0]


def test_eager_never_leaves_a_row_behind_that_arrived_while_the_inbox_was_emptied() -> None:
    class LateInbox(FakeInbox):
        """Somebody arrives just after the worker has emptied it."""

        def drain(self) -> list[Any]:
            items = super().drain()
            if latecomers:
                latecomers.pop()()
            return items

    latecomers: list[Callable[[], object]] = []
    core = Core(policy=BatchPolicy.EAGER, inbox=LateInbox)
    arrival = core.admission.announce()
    core.submit(["a"])
    latecomers.append(lambda: core.submit(["b"], arrival=arrival))
    core.run()
    assert core.model.calls[0].rows == ["a", "b"]


def test_eager_never_waits_longer_than_the_latency() -> None:
    core = Core(policy=BatchPolicy.EAGER, latency_s=8.0)
    core.admission.announce()  # somebody uploads for ever
    core.submit_at(1.0, ["a"])
    core.run()
    assert [call.at for call in core.model.calls] == [9.0]
    assert core.listener.reasons == [FlushReason.LATENCY]


def test_eager_waits_a_moment_for_requests_that_no_thread_has_read() -> None:
    unread = [1]
    core = Core(policy=BatchPolicy.EAGER, on_the_way=lambda: len(unread))
    core.submit_at(1.0, ["a"])
    core.clock.at(1.002, unread.clear)
    core.submit_at(1.002, ["b"])
    core.run()
    assert [(call.at, call.rows) for call in core.model.calls] == [(1.002, ["a", "b"])]


def test_eager_does_not_wait_longer_than_that_moment_for_what_nobody_reads() -> None:
    core = Core(policy=BatchPolicy.EAGER, on_the_way=lambda: 1)  # a client that the server has lost count of
    core.submit_at(1.0, ["a"])
    core.run()
    assert [call.at for call in core.model.calls] == [pytest.approx(1.0 + UNREAD_WAIT_S)]
    assert core.listener.reasons == [FlushReason.IDLE]


def test_the_moment_for_what_nobody_has_read_is_within_the_latency() -> None:
    core = Core(policy=BatchPolicy.EAGER, latency_s=UNREAD_WAIT_S / 4, on_the_way=lambda: 1)
    core.submit_at(1.0, ["a"])
    core.run()
    assert [call.at for call in core.model.calls] == [pytest.approx(1.0 + UNREAD_WAIT_S / 4)]
    assert core.listener.reasons == [FlushReason.LATENCY]


def test_eager_never_misses_a_request_that_passes_from_the_server_to_the_batcher_while_it_counts() -> None:
    unread, arrivals = [1], []

    def count() -> int:
        if unread:  # it is announced, and then dropped by the server, just when the worker asks there
            arrivals.append(core.admission.announce())
            unread.clear()
            core.clock.at(3.0, lambda: core.submit(["b"], arrival=arrivals.pop()))
        return len(unread)

    core = Core(policy=BatchPolicy.EAGER, on_the_way=count)
    core.submit(["a"])
    core.run()
    assert [call.rows for call in core.model.calls] == [["a", "b"]]


def test_window_does_not_ask_the_server_who_is_coming() -> None:
    def unasked() -> int:
        raise AssertionError("asked for nothing")

    core = Core(policy=BatchPolicy.WINDOW, latency_s=8.0, on_the_way=unasked)
    core.submit_at(1.0, ["a"])
    core.run()
    assert [call.at for call in core.model.calls] == [9.0]


def test_window_does_not_care_who_is_on_the_way() -> None:
    core = Core(policy=BatchPolicy.WINDOW, latency_s=8.0)
    arrival = core.admission.announce()
    assert core.admission.on_the_way == 0  # counting would be work for nobody
    core.submit_at(1.0, ["a"], arrival=arrival)
    core.run()
    assert [call.at for call in core.model.calls] == [9.0]


def test_lanes_are_never_mixed() -> None:
    core = Core(max_batch_size=4, latency_s=8.0)
    for row in range(6):
        core.submit_at(1.0, [row], key="even" if row % 2 == 0 else "odd")
    core.run()
    assert sorted((call.key, call.rows) for call in core.model.calls) == [("even", [0, 2, 4]), ("odd", [1, 3, 5])]


def test_of_two_lanes_that_are_ready_the_one_whose_front_row_queued_first_goes_first() -> None:
    core = Core(max_batch_size=2, latency_s=8.0, service_s=lambda call: 50.0 if call.key == "x" else 0.0)
    core.submit_at(0.0, ["x", "x"], key="x")
    core.submit_at(1.0, ["late"], key="late", timeout_s=500.0)
    core.submit_at(0.5, ["early"], key="early", timeout_s=500.0)
    core.submit_at(2.0, ["full", "full"], key="full", timeout_s=500.0)
    core.run()
    assert [call.key for call in core.model.calls] == ["x", "early", "late", "full"]


@pytest.mark.parametrize("policy", list(BatchPolicy))
def test_nothing_is_left_behind(policy: BatchPolicy) -> None:
    core = Core(policy=policy, service_s=1.0)
    for moment in range(20):
        core.submit_at(float(moment), list(range(moment % 6 + 1)), key=moment % 3)
    core.run()
    core.assert_at_rest()
    assert [core.outcome(ticket) for ticket in core.tickets] == [list(range(m % 6 + 1)) for m in range(20)]


def test_after_a_lone_batch_the_worker_waits_without_another_look() -> None:
    looks_in_vain = []

    class WatchedInbox(FakeInbox):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if not block and not self.qsize():
                looks_in_vain.append(timeout)
            return super().get(block, timeout)

    core = Core(latency_s=0.0, inbox=WatchedInbox)
    for moment in range(5):
        core.submit_at(float(moment), [moment])
    core.run()
    assert core.model.sizes == [1] * 5
    assert looks_in_vain == []
