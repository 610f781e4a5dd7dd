"""Many callers at once, each on a thread of its own, all ended before the test goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from support.models import GUARD_S


class Callers:
    """Threads that each run one call and keep what came of it: a value, or the exception itself."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.outcomes: dict[int, Any] = {}

    def start(self, call: Callable[[], Any]) -> int:
        """Start a caller; returns the number under which its outcome will be found."""
        number = len(self._threads)

        def body() -> None:
            try:
                self.outcomes[number] = call()
            except BaseException as error:
                self.outcomes[number] = error

        thread = threading.Thread(target=body, name=f"caller-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return number

    def finish(self, guard_s: float = GUARD_S) -> list[Any]:
        """Every outcome, in the order of the starts."""
        for thread in self._threads:
            thread.join(guard_s)
            assert not thread.is_alive(), f"{thread.name} hangs"
        return [self.outcomes[number] for number in range(len(self._threads))]


def all_at_once(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Run every call on its own thread, all released at the same moment; their outcomes, in order."""
    calls = list(calls)
    barrier = threading.Barrier(len(calls), timeout=GUARD_S)
    callers = Callers()
    for call in calls:

        def run(call: Callable[[], Any] = call) -> Any:
            barrier.wait()
            return call()

        callers.start(run)
    return callers.finish(60.0)
