"""`OneShotEvent`: a `threading.Event` for the end of one request."""

from __future__ import annotations

import threading


class OneShotEvent(threading.Event):
    """A `threading.Event` that is set once, awaited by one thread, and cheap to make.

    The standard Event is a lock within a condition. To make one takes longer than to admit a request, and the thread
    that it wakes has to wait for the condition's own lock, which the waking thread still holds. This one is a single
    lock: the waiter has it when the event has been set.

    *Thread:* any thread may call `set` and `is_set`; only one may call `wait`, as often as it likes.
    """

    def __init__(self) -> None:
        # Not the parent's, which makes the condition.
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def __repr__(self) -> str:
        return f"<OneShotEvent {'set' if self._is_set else 'unset'}>"

    def is_set(self) -> bool:
        """Whether it has been set."""
        return self._is_set

    def set(self) -> None:
        """Wake the waiter; again is harmless."""
        self._is_set = True
        try:  # noqa: SIM105 - entering `suppress` costs more than all the rest
            self._gate.release()
        except RuntimeError:
            pass  # it was set before, perhaps at this very moment by another thread: the gate is open

    def clear(self) -> None:
        """Refused: whoever waits for a second request needs a second event."""
        raise RuntimeError("an event of one request cannot be used again")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; False when `timeout` seconds, at least 0, have passed without that."""
        return self._is_set or self._gate.acquire(timeout=-1 if timeout is None else timeout)
