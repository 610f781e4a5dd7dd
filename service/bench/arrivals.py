"""When the requests of an open loop are due, in seconds from its start.

The times depend on nothing that the server does: a server that stalls is asked as often as one that does not.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

# A week. Beyond it the times are taken for what they most likely are: of another unit.
_LONGEST_REPLAY_S = 7 * 86_400.0


def constant(rate_per_s: float) -> Iterator[float]:
    """Equally far apart, without end."""
    return (number / rate_per_s for number in itertools.count())


def poisson(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    """As independent callers come, without end: the gaps are exponentially distributed."""
    at_s = 0.0
    while True:
        at_s += rng.expovariate(rate_per_s)
        yield at_s


def bursts(rate_per_s: float, size: int) -> Iterator[float]:
    """`size` at once and then none until the next burst, without end; `rate_per_s` of them on average."""
    for number in itertools.count():
        yield from itertools.repeat(number * size / rate_per_s, size)


def replay(path: Path) -> list[float]:
    """Recorded times, moved so that the first is 0 and put in order.

    One per line: seconds on any clock, or a date and time in ISO 8601. Raises ValueError that names the line.
    """
    times = [_time(line.strip(), number) for number, line in enumerate(_lines(path), 1) if line.strip()]
    if not times:
        raise ValueError("no times in it: it must hold one per line, in seconds or as an ISO 8601 date")
    first = min(times)
    recorded = sorted(time - first for time in times)
    if recorded[-1] > _LONGEST_REPLAY_S:
        raise ValueError(
            f"from the first to the last it is {recorded[-1]:.3g} s, and may be {_LONGEST_REPLAY_S:g}: it must be in "
            "seconds, not in milliseconds"
        )
    return recorded


def until(duration_s: float, arrivals: Iterator[float]) -> Iterator[float]:
    """Those that are due before `duration_s`."""
    return itertools.takewhile(lambda due_s: due_s < duration_s, arrivals)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8-sig").split("\n")


def _time(text: str, number: int) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            seconds = math.nan
    if not math.isfinite(seconds):
        raise ValueError(f"line {number} is no time: it must be seconds, or a date and time as 2026-01-31T12:00:00.250")
    return seconds
