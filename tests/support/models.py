"""Models for tests: one that remembers what it was asked, one that can be held in the middle of a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from support.clock import FakeClock

# No wait of a test is longer; only a broken run gets there.
GUARD_S = 10.0


@dataclass(frozen=True)
class Call:
    """One call of a model."""

    at: float
    key: Hashable
    rows: list[Any]


class RecordingModel:
    """Answers each row with itself and remembers every call. `before(call)` may raise or let time pass."""

    def __init__(self, clock: Callable[[], float], before: Callable[[Call], None] = lambda call: None) -> None:
        self.calls: list[Call] = []
        self._clock = clock
        self._before = before

    def __call__(self, key: Hashable, rows: list[Any]) -> Any:
        call = Call(self._clock(), key, list(rows))
        self.calls.append(call)
        self._before(call)
        return list(rows)

    @property
    def sizes(self) -> list[int]:
        return [len(call.rows) for call in self.calls]

    @property
    def seen(self) -> list[Any]:
        """Every row that reached the model, in order."""
        return [row for call in self.calls for row in call.rows]


def takes(clock: FakeClock, seconds: float) -> Callable[[Call], None]:
    """For `before`: every call lasts this long."""
    return lambda call: clock.advance(seconds)


def fails_on(*bad: Any) -> Callable[[Call], None]:
    """For `before`: raise when one of these rows is in the batch."""

    def check(call: Call) -> None:
        found = [row for row in call.rows if row in bad]
        if found:
            raise ValueError(f"cannot digest {found}")

    return check


class GatedModel:
    """Says when it has been called, and answers each row with itself once it is released."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.release = threading.Event()
        self.calls: list[list[Any]] = []

    def __call__(self, rows: list[Any], key: Hashable = None) -> list[Any]:
        self.calls.append(list(rows))
        self.started.set()
        assert self.release.wait(GUARD_S), "nobody released the model"
        return list(rows)
