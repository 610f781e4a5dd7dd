"""`Latch`: a signal that is given once, to one thread."""

from __future__ import annotations

from threading import Lock


class Latch:
    """What `threading.Event` promises, as far as the end of one request needs it: set once, awaited by one thread.

    An Event is a lock within a condition within an object. To make one takes longer than to admit a request, and the
    thread that it wakes has to wait for the condition's own lock, which the waking thread still holds. This is one
    lock: the waiter has it when the signal has been given.

    *Thread:* any thread may call `set` and `is_set`; only one may call `wait`, as often as it likes.
    """

    __slots__ = ("_gate", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._gate = Lock()
        self._gate.acquire()

    def is_set(self) -> bool:
        """Whether the signal has been given."""
        return self._is_set

    def set(self) -> None:
        """Give the signal; again is harmless."""
        self._is_set = True
        try:  # noqa: SIM105 - entering `suppress` costs more than all the rest
            self._gate.release()
        except RuntimeError:
            pass  # it was given before, perhaps at this very moment by another thread: the gate is open

    def wait(self, timeout_s: float) -> bool:
        """Wait for the signal; False when `timeout_s` seconds, at least 0, have passed without it."""
        return self._is_set or self._gate.acquire(timeout=timeout_s)
