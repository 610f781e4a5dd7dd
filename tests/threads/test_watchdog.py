from __future__ import annotations

import threading

from service.server.watchdog import Watchdog

GUARD_S = 5.0


class Model:
    """Says how long its batch has been running, one value a look; and how often it was asked."""

    def __init__(self, *busy_s: float) -> None:
        self.left = list(busy_s)
        self.was_asked = threading.Event()

    def __call__(self) -> float:
        value = self.left.pop(0) if self.left else 0.0
        if not self.left:
            self.was_asked.set()
        return value


class Ends:
    """Hears of a stall."""

    def __init__(self) -> None:
        self.heard: list[float] = []
        self.thread = ""
        self.told = threading.Event()

    def __call__(self, busy_s: float) -> None:
        self.heard.append(busy_s)
        self.thread = threading.current_thread().name
        self.told.set()


def test_a_batch_over_the_limit_is_told_once_on_the_watchdogs_own_thread():
    ends = Ends()
    watchdog = Watchdog(Model(0.0, 0.04, 0.07, 0.08), 0.05, ends)
    watchdog.start()
    assert ends.told.wait(GUARD_S)
    watchdog._thread.join(GUARD_S)
    assert (ends.heard, ends.thread) == ([0.07], "jitney-watchdog")
    assert not watchdog._thread.is_alive()


def test_an_idle_model_is_looked_at_again_and_nothing_is_told():
    ends, model = Ends(), Model(0.0, 0.0, 0.03, 0.0)
    watchdog = Watchdog(model, 0.05, ends)
    watchdog.start()
    assert model.was_asked.wait(GUARD_S)
    watchdog.close()
    watchdog._thread.join(GUARD_S)
    assert ends.heard == []


def test_close_ends_the_thread_long_before_its_next_look():
    watchdog = Watchdog(Model(), 3600.0, Ends())
    watchdog.start()
    assert "alive=True" in repr(watchdog)
    watchdog.close()
    watchdog._thread.join(GUARD_S)
    assert repr(watchdog) == "<Watchdog limit_s=3600.0 alive=False closed=True>"


def test_a_limit_beyond_what_the_system_can_wait_is_no_error():
    watchdog = Watchdog(Model(), 1e300, Ends())
    watchdog.start()
    watchdog._thread.join(0.05)
    assert watchdog._thread.is_alive()
    watchdog.close()
    watchdog._thread.join(GUARD_S)
