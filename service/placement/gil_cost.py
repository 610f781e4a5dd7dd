"""How much of a call leaves Python to other threads: measured by a thread that wants it all the time."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# How long a sample lasts at least, seconds: a short call is repeated, or the clock could not tell it from nothing. And
# how many pairs of samples are taken; the middle one counts.
SAMPLE_S = 0.004
PAIRS = 5

# A call as long as this, seconds, is measured in one pair: it fills a sample many times over.
LONG_S = 0.05

# For how long pairs are taken until there are enough that no other program has disturbed, seconds.
BUDGET_S = 1.0

# A sample is disturbed when a thread has waited for a core for more than these parts of it: alone, and beside the other
# thread, where each change from one to the other takes a moment.
ALONE_WAIT, BESIDE_WAIT = 0.05, 0.15

# A call that keeps more cores busy than this has native threads of its own.
SEVERAL_CORES = 1.25

# After how long a thread may ask another one for the interpreter while it is measured, seconds. With Python's own 5 ms
# a call that lets go of it for a moment would wait a hundred times as long to get it back.
SWITCH_INTERVAL_S = 0.0002

_TASKS = Path("/proc/self/task")


class CallCost(NamedTuple):
    """What one call takes, alone. `wall_s`: seconds. `gil_free_s`: for how many of these another thread may run Python;
    all of them where native threads compute. `cores`: how many cores it kept busy.
    """

    wall_s: float
    gil_free_s: float
    cores: float

    @property
    def gil_free_share(self) -> float:
        """Which part of the call leaves Python to others, 0 to 1."""
        return self.gil_free_s / self.wall_s if self.wall_s > 0 else 0.0


def call_cost(call: Callable[[], object], *, has_own_threads: bool = True) -> CallCost | None:
    """Measure `call`, which must take about as long each time.

    None where it cannot be known: the system does not tell for how long threads run, or other programs use its cores.
    It takes some 60 ms, and `BUDGET_S` where it is disturbed; three runs of a call that is longer than `LONG_S`.
    has_own_threads: whether the call may have native threads; if not, those that compute are another call's.

    *Thread:* the one that will make the call later on.
    """
    if not _schedstat(threading.get_native_id()).exists():
        return None
    give_up_at = time.monotonic() + BUDGET_S
    took_s = _seconds(call, 1)
    repeats = max(1, round(SAMPLE_S / max(took_s, 1e-6)))
    pairs: list[CallCost] = []
    while len(pairs) < (1 if took_s >= LONG_S else PAIRS):
        if (pair := _pair(call, repeats, has_own_threads)) is not None:
            pairs.append(pair)
        elif time.monotonic() > give_up_at:
            return None
    wall_s, gil_free_s, cores = map(statistics.median, zip(*pairs, strict=True))
    return CallCost(wall_s / repeats, gil_free_s / repeats, cores)


class Alone(NamedTuple):
    """Calls with nothing beside them. `waited_s`: for how long their thread waited for a core; all times in seconds."""

    wall_s: float
    cpu_s: float
    waited_s: float

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


def judged(alone: Alone, beside: Beside | None, *, has_own_threads: bool = True) -> CallCost | None:
    """What the calls cost, as two samples tell it: whenever the rival did not run, the calls kept the interpreter.

    beside: None where the calls alone tell enough. None when other programs, or another call's threads, disturbed them.
    """
    if alone.cores > SEVERAL_CORES and has_own_threads:  # disturbed or not: others could only have made them fewer
        return CallCost(alone.wall_s, alone.wall_s, alone.cores)
    if alone.cores > SEVERAL_CORES or alone.waited_s > ALONE_WAIT * alone.wall_s:
        return None
    if beside is None or max(beside.waited_s, beside.rival_waited_s) > BESIDE_WAIT * beside.wall_s:
        return None
    kept_s = beside.wall_s - beside.rival_ran_s
    return CallCost(alone.wall_s, min(max(alone.wall_s - kept_s, 0.0), alone.wall_s), alone.cores)


def _pair(call: Callable[[], object], repeats: int, has_own_threads: bool) -> CallCost | None:
    """The calls once alone and once beside a rival, one right after the other, as machines change their pace."""
    alone = _alone(call, repeats)
    is_told = alone.cores > SEVERAL_CORES or alone.waited_s > ALONE_WAIT * alone.wall_s
    return judged(alone, None if is_told else _beside(call, repeats), has_own_threads=has_own_threads)


def _alone(call: Callable[[], object], repeats: int) -> Alone:
    own = threading.get_native_id()
    (_, waited_s), cpu_s = _times(own), time.process_time()
    wall_s = _seconds(call, repeats)
    return Alone(wall_s, time.process_time() - cpu_s, _times(own)[1] - waited_s)


def _beside(call: Callable[[], object], repeats: int) -> Beside:
    own = threading.get_native_id()
    with _short_turns(), _Rival() as rival:
        (_, waited_s), (ran_s, rival_waited_s) = _times(own), rival.times()
        wall_s = _seconds(call, repeats)
        (_, now_waited_s), (now_ran_s, _) = _times(own), rival.times()
    return Beside(wall_s, now_waited_s - waited_s, now_ran_s - ran_s, rival.waited_s - rival_waited_s)


class _Rival:
    """A thread that computes in Python whenever it may. `waited_s`: its waits for a core, known once it has ended."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._stop = False
        self._runs = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jitney-rival", daemon=True)

    def __enter__(self) -> _Rival:
        self._thread.start()
        self._runs.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join()

    def _run(self) -> None:
        self._runs.set()
        while not self._stop:
            pass
        # Here and not by the others: the system counts a wait for a core only when it has ended.
        _, self.waited_s = _times(threading.get_native_id())

    def times(self) -> tuple[float, float]:
        """For how long it has computed, and so had the interpreter; for how long it has waited for a core. Seconds."""
        return _times(self._thread.native_id)


def _times(thread_id: int | None) -> tuple[float, float]:
    """For how long a thread has run on a core, and for how long it has waited for one that others used, seconds."""
    ran_ns, waited_ns, _ = _schedstat(thread_id).read_text().split()
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


def _schedstat(thread_id: int | None) -> Path:
    return _TASKS / str(thread_id) / "schedstat"


def _seconds(call: Callable[[], object], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return max(time.perf_counter() - began, 1e-9)


@contextmanager
def _short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
