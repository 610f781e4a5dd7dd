"""`OneShotEvent`: a `threading.Event` for the end of one request."""

from __future__ import annotations

import threading


class _Spare(threading.local):
    """The closed gate that a thread has left over from its last request; None where it has none."""

    gate: threading.Lock | None = None


_spare = _Spare()


class OneShotEvent(threading.Event):
    """A `threading.Event` that is set once, awaited by one thread, and cheap to make.

    The standard Event is a lock within a condition. To make one takes longer than to admit a request, and the thread
    that it wakes has to wait for the condition's own lock, which the waking thread still holds. This one is a single
    lock, the gate: the waiter has it when the event has been set.

    A thread needs one gate for all of its requests: whoever has waited to the end keeps it for the next event that it
    makes. After a wait that ran out, or was broken off, the gate stays with the event, since a signal that comes late
    would otherwise wake the next request, which has no result yet.

    *Thread:* any thread may call `set` and `is_set`; only one may call `wait`, as often as it likes.
    """

    def __init__(self) -> None:
        # Not the parent's, which makes the condition.
        self._is_set = False
        gate = _spare.gate
        if gate is None:
            gate = threading.Lock()
            gate.acquire()
        else:
            _spare.gate = None
        self._gate: threading.Lock | None = gate  # the waiter's alone; None once it has been through
        self._key = [gate.release]  # whoever takes it out opens the gate, and nobody can do so twice

    def __repr__(self) -> str:
        return f"<OneShotEvent {'set' if self._is_set else 'unset'}>"

    def is_set(self) -> bool:
        """Whether it has been set."""
        return self._is_set

    def set(self) -> None:
        """Wake the waiter; again is harmless."""
        self._is_set = True
        try:
            open_gate = self._key.pop()
        except IndexError:
            return  # it was set before, perhaps at this very moment by another thread
        open_gate()

    def clear(self) -> None:
        """Refused: whoever waits for a second request needs a second event."""
        raise RuntimeError("an event of one request cannot be used again")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; False when `timeout` seconds, at least 0, have passed without that."""
        gate = self._gate
        if gate is None:
            return True
        # Not before a look at `_is_set`: the gate is opened a moment later, and must be closed again to be of use.
        if not gate.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self._gate = None
        _spare.gate = gate
        return True
