"""Time that moves only when somebody moves it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class FakeClock:
    """A clock with an agenda: what is due happens, in order, while time passes over it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def __call__(self) -> float:
        return self.now

    def at(self, moment: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._agenda, (moment, next(self._order), action))

    @property
    def next_moment(self) -> float | None:
        return self._agenda[0][0] if self._agenda else None

    def advance(self, seconds: float) -> None:
        self.advance_to(self.now + seconds)

    def advance_to(self, moment: float) -> None:
        while self._agenda and self._agenda[0][0] <= moment:
            due, _, action = heapq.heappop(self._agenda)
            self.now = max(self.now, due)
            action()
        self.now = max(self.now, moment)
