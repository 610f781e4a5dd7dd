"""The worker threads of a batcher: started together, ended together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class WorkerThreads:
    """So many threads with one body, each with its number, which is part of its name where there are several.

    Not safe on its own: its owner's lock guards `start`.
    """

    def __init__(self, count: int, name: str, body: Callable[[int], None]) -> None:
        self._count = count
        self._name = name
        self._body = body
        self._threads: tuple[threading.Thread, ...] = ()

    def __len__(self) -> int:
        return len(self._threads)

    def start(self) -> None:
        """Start all of them; raises what the system says against one, and then those before it run."""
        for number in range(self._count):
            name = f"{self._name}-worker" + ("" if self._count == 1 else f"-{number}")
            thread = threading.Thread(target=self._body, args=(number,), name=name, daemon=True)
            thread.start()
            self._threads += (thread,)

    @property
    def are_there(self) -> bool:
        """Whether all run."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    @property
    def any_is_there(self) -> bool:
        """Whether one runs."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self, timeout_s: float) -> bool:
        """Wait until the last has ended; False after `timeout_s` seconds, which are for all of them together."""
        give_up_at = time.monotonic() + min(timeout_s, threading.TIMEOUT_MAX)
        for thread in self._threads:
            thread.join(max(0.0, min(give_up_at - time.monotonic(), threading.TIMEOUT_MAX)))
        return not self.any_is_there
