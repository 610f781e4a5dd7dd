"""How much of a call leaves Python to other threads: measured by a thread that wants it all the time."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import NamedTuple

from service.placement import samples
from service.placement.samples import Alone, Beside

# How long a sample lasts at least, seconds: a short call is repeated, or the clock could not tell it from nothing. It
# fits into the turn that the system gives a thread on a core that others use: some samples are undisturbed even there.
# And how many pairs of samples are taken; the middle one counts.
SAMPLE_S = 0.001
PAIRS = 5

# A call as long as this, seconds, is measured in one pair: it fills a sample many times over.
LONG_S = 0.05

# A sample is disturbed when a thread has waited for a core for more than these parts of it: alone, and beside the other
# thread, where each change from one to the other takes a moment.
ALONE_WAIT, BESIDE_WAIT = 0.05, 0.15

# Or when other threads of Python's have computed for more than this part of it.
OTHERS = 0.1

# A call that keeps more cores busy than this has native threads of its own.
SEVERAL_CORES = 1.25


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


class CallMeter:
    """Finds out what `call` costs, which must take about as long each time. `cost`: None until that is known.

    has_own_threads: whether the call may have native threads; if not, those that compute are another call's.

    *Thread:* the one that will make the call later on.
    """

    def __init__(self, call: Callable[[], object], *, has_own_threads: bool = True) -> None:
        self._call = call
        self._has_own_threads = has_own_threads
        self._shortest_s: float | None = None
        self._pairs: list[CallCost] = []
        self.cost: CallCost | None = None

    def step(self, may_go_on: Callable[[], bool] = lambda: True) -> bool:
        """Take one pair of samples more; False where it counts for nothing, as others have disturbed it.

        It takes about 3 `SAMPLE_S`, or some calls where one takes longer. `may_go_on` is asked before each sample,
        which lasts no longer than a call does, or beside another thread two, or than `SAMPLE_S` and twice that.
        """
        if self._shortest_s is None:
            self._shortest_s = samples.seconds(self._call, 1)
        repeats = max(1, round(SAMPLE_S / max(self._shortest_s, 1e-6)))
        if not may_go_on():
            return False
        alone = samples.alone(self._call, repeats)
        self._shortest_s = min(self._shortest_s, alone.wall_s / repeats)
        pair = judged(alone, None, has_own_threads=self._has_own_threads)
        if pair is None and not _is_disturbed(alone) and may_go_on():
            # Right after the other sample, as machines change their pace.
            pair = judged(alone, samples.beside(self._call, repeats), has_own_threads=self._has_own_threads)
        if pair is None:
            return False
        self._pairs.append(CallCost(pair.wall_s / repeats, pair.gil_free_s / repeats, pair.cores))
        if len(self._pairs) >= (1 if self._shortest_s >= LONG_S else PAIRS):
            wall_s, gil_free_s, cores = map(statistics.median, zip(*self._pairs, strict=True))
            self.cost = CallCost(wall_s, gil_free_s, cores)
        return True


def judged(alone: Alone, beside: Beside | None, *, has_own_threads: bool = True) -> CallCost | None:
    """What the calls cost, as two samples tell it: whenever the rival did not run, the calls kept the interpreter.

    beside: None where the calls alone tell enough. None when other programs, or other threads, disturbed them.
    """
    if alone.others_s > OTHERS * alone.wall_s:
        return None
    if alone.cores > SEVERAL_CORES and has_own_threads:  # disturbed or not: others could only have made them fewer
        return CallCost(alone.wall_s, alone.wall_s, alone.cores)
    if _is_disturbed(alone) or beside is None:
        return None
    if max(beside.waited_s, beside.rival_waited_s) > BESIDE_WAIT * beside.wall_s:
        return None
    if beside.others_s > OTHERS * beside.wall_s:
        return None
    kept_s = beside.wall_s - beside.rival_ran_s
    return CallCost(alone.wall_s, min(max(alone.wall_s - kept_s, 0.0), alone.wall_s), alone.cores)


def _is_disturbed(alone: Alone) -> bool:
    return (
        alone.cores > SEVERAL_CORES
        or alone.waited_s > ALONE_WAIT * alone.wall_s
        or alone.others_s > OTHERS * alone.wall_s
    )
