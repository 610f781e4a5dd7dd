"""Moments of the batcher's clock as those of the calendar, which spans are dated by."""

from __future__ import annotations

import time
from collections.abc import Callable


def calendar() -> Callable[[float], int]:
    """What turns readings of `time.monotonic()` into nanoseconds since 1970, by how far the two clocks are apart now.

    One for all moments that are shown together: between two of them the calendar may have been set.
    """
    apart_ns = time.time_ns() - time.monotonic_ns()
    return lambda moment_s: apart_ns + int(moment_s * 1e9)
