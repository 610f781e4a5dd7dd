"""An ONNX model on CPUs that several threads share."""

from __future__ import annotations

import threading
from typing import Any


class SessionSideBySide:
    """Runs a batch that is alone on the CPU threads of all callers, and one that comes beside others on one's share.

    alone: a session with all these threads. beside: as many as there are callers, each with a caller's share, and this
    object's own list; it may be one session several times when its share is the calling thread itself. So a caller who
    has the machine to himself has all of it, and batches side by side do not wait for each other's threads. Everything
    else is that of `alone`.

    *Thread:* any, several at once, as each session may be run by.
    """

    def __init__(self, alone: Any, beside: list[Any]) -> None:
        self._alone = alone
        self._lock = threading.Lock()  # guards the two below
        self._running = 0
        self._free = beside

    def run(self, outputs: Any, feed: Any) -> Any:
        """What the model gives for `feed`."""
        with self._lock:
            session = self._free.pop() if self._running and self._free else self._alone
            self._running += 1
        try:
            return session.run(outputs, feed)
        finally:
            with self._lock:
                self._running -= 1
                if session is not self._alone:
                    self._free.append(session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._alone, name)
