"""What gunicorn's master does about processes that did not hear that they are to stop."""

from __future__ import annotations

from signal import SIGTERM

from service.server.repeated_stop import REPEAT_S, RepeatedStop
from tests.support.clock import FakeClock


class Master:
    """The part of gunicorn's master that ends processes; each look at them takes a part of a second."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.sent: list[int] = []
        self.clock = FakeClock()
        RepeatedStop(self, self.clock)

    def kill_workers(self, signal: int) -> None:
        self.sent.append(signal)

    def reap_workers(self) -> None:
        self.looks -= 1

    def stop(self, graceful: bool = True) -> None:
        while self.looks:
            self.reap_workers()
            self.clock.advance(REPEAT_S / 2)


def test_processes_are_told_again_as_long_as_they_are_waited_for():
    master = Master(looks=7)
    master.stop()
    assert master.sent == [SIGTERM] * 3


def test_nothing_is_repeated_where_nothing_stops_or_nobody_waits():
    master = Master(looks=7)
    master.reap_workers()
    master.clock.advance(10 * REPEAT_S)
    master.reap_workers()
    master.stop(graceful=False)
    assert master.sent == []
