"""How thorough a run is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """`duration_s`: of each load. `sizes`, `waits_ms`, `loads`: what is varied; loads as shares of the capacity.

    `rounds`: how often loads are repeated where small differences count; the median is told.
    """

    duration_s: float
    sizes: tuple[int, ...]
    loads: tuple[float, ...]
    windows_ms: tuple[float, ...]
    waits_ms: tuple[float, ...] = (0, 2, 5, 10, 20, 50)
    rounds: int = 1


QUICK = Scale(2.0, (1, 4, 16, 64), (0.1, 0.4, 0.7, 0.95), (5, 20))
_LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
FULL = Scale(10.0, (1, 2, 4, 8, 16, 32, 64), _LOADS, (2, 5, 10, 20), rounds=3)
