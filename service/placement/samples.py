"""Samples of a call: alone, and beside a thread that wants Python all the time. How long they took, by which clocks."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

# After how long a thread may ask another one for the interpreter while it is measured, seconds. With Python's own 5 ms
# a call that lets go of it for a moment would wait a hundred times as long to get it back.
SWITCH_INTERVAL_S = 0.0002

_TASKS = Path("/proc/self/task")

# What makes a clock of a thread's number: the time that one thread has been scheduled. Source: linux/posix-timers.h.
_PER_THREAD, _SCHEDULED = 4, 2


class Alone(NamedTuple):
    """Calls with nothing beside them. `waited_s`: for how long their thread waited for a core. `others_s`: what other
    threads of Python's computed meanwhile; all times in seconds.
    """

    wall_s: float
    cpu_s: float
    waited_s: float
    others_s: float

    @property
    def cores(self) -> float:
        """How many cores the process kept busy."""
        return self.cpu_s / self.wall_s


class Beside(NamedTuple):
    """The same calls beside a thread that always computes in Python, the rival; for how long it did, and waited."""

    wall_s: float
    waited_s: float
    rival_ran_s: float
    rival_waited_s: float
    others_s: float


def are_possible() -> bool:
    """Whether the system tells for how long a thread waits for a core."""
    return _schedstat(threading.get_native_id()).exists()


def alone(call: Callable[[], object], repeats: int) -> Alone:
    """Call so many times, with nothing beside it. *Thread:* the one that will make the call later on."""
    own = threading.get_native_id()
    others, waited_s, cpu_s = _others(), _waited_s(own), time.process_time()
    wall_s = seconds(call, repeats)
    return Alone(wall_s, time.process_time() - cpu_s, _waited_s(own) - waited_s, _since(others, _others()))


def beside(call: Callable[[], object], repeats: int) -> Beside:
    """Call so many times beside a rival. *Thread:* as for `alone`."""
    own = threading.get_native_id()
    with _short_turns(), _Rival() as rival:
        others, waited_s, rival_waited_s = _others(rival.thread), _waited_s(own), rival.waits_s()
        ran_s = rival.ran_s()
        wall_s = seconds(call, repeats)
        ran_s = rival.ran_s() - ran_s
        waited_s, others_s = _waited_s(own) - waited_s, _since(others, _others(rival.thread))
    return Beside(wall_s, waited_s, ran_s, rival.waited_s - rival_waited_s, others_s)


def seconds(call: Callable[[], object], repeats: int) -> float:
    """How long so many calls take; more than 0."""
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return max(time.perf_counter() - began, 1e-9)


class _Rival:
    """A thread that computes in Python whenever it may. `waited_s`: its waits for a core, known once it has ended."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._stop = False
        self._runs = threading.Event()
        self.thread = threading.Thread(target=self._run, name="jitney-rival", daemon=True)

    def __enter__(self) -> _Rival:
        self.thread.start()
        self._runs.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self.thread.join()

    def _run(self) -> None:
        self._runs.set()
        while not self._stop:
            pass
        # Here and not by the others: the system counts a wait for a core only when it has ended.
        self.waited_s = self.waits_s()

    def ran_s(self) -> float:
        """For how long it has computed, and so had the interpreter, to this moment; seconds."""
        assert self.thread.native_id is not None
        return _computed_s(self.thread.native_id)

    def waits_s(self) -> float:
        """For how long it has waited for a core, up to when it last got one; seconds."""
        return _waited_s(self.thread.native_id)


def _others(rival: threading.Thread | None = None) -> dict[int, float]:
    """For how long each of the other threads of Python's has computed so far, seconds, by its number."""
    main, computed_s = threading.main_thread(), {}
    for thread in threading.enumerate():
        if thread not in (threading.current_thread(), rival):
            # Of a thread that lived through a fork it is the id in the parent. Others may not run yet, or have ended.
            thread_id = os.getpid() if thread is main else thread.native_id
            if thread_id is not None:
                with suppress(OSError):
                    computed_s[thread_id] = _computed_s(thread_id)
    return computed_s


def _since(before: dict[int, float], now: dict[int, float]) -> float:
    """What those that are there now have computed since then, seconds."""
    return sum(computed_s - before.get(thread_id, 0.0) for thread_id, computed_s in now.items())


def _computed_s(thread_id: int) -> float:
    """For how long a thread has run on a core, to this moment, seconds. By its clock: the statistics are as old
    as the last tick of a thread that runs, and to read those of all threads takes longer than a sample.

    Raises OSError when there is no such thread any more.
    """
    return time.clock_gettime((~thread_id << 3) | _PER_THREAD | _SCHEDULED)


def _waited_s(thread_id: int | None) -> float:
    """For how long a thread has waited for a core that others used, up to when it last got one; seconds."""
    _, waited_ns, _ = _schedstat(thread_id).read_text().split()
    return int(waited_ns) / 1e9


def _schedstat(thread_id: int | None) -> Path:
    return _TASKS / str(thread_id) / "schedstat"


@contextmanager
def _short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
