"""An ONNX session that several threads share."""

from __future__ import annotations

import threading
from typing import Any


class SessionInTurns:
    """Runs one batch at a time, whichever thread asks; everything else is the session's own.

    *Thread:* any, several at once. The lock is held for a run, whose end the session waits for without Python's lock.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._running = threading.Lock()

    def run(self, outputs: Any, feed: Any) -> Any:
        """What the session gives for `feed`."""
        with self._running:
            return self._session.run(outputs, feed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)
