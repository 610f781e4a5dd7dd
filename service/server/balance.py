"""New connections are for the processes that have few: who has clearly more than another one leaves them to that.

All worker processes wait at the same listening sockets, and one that happens to have a CPU takes what there is. Clients
keep their connections, and so the chance of a moment would decide for minutes who has the work. Each process therefore
writes into memory that all share how many it has open, and one with clearly more looks away from the sockets: for some
milliseconds at most, because the others may be busy, stopped, or about to end.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection
from typing import Any

# How much more than another process one may have, and still takes: so much, and this part of what that has.
SLACK = 1
SLACK_PART = 1 / 8

# How long connections are left to others, and how often who does that looks whether they have caught up.
LEAVE_S = 0.005
LOOK_AGAIN_S = 0.001

# How many connections are taken at most after one that was left in vain, before another one is left.
MOST_IN_VAIN = 64

# What is in the slot of a process that does not accept, and of none: more than any number of connections.
_NOBODY = 2**31 - 1

# For all processes that are wanted, as many that they follow, and some that end or were asked for by signals.
_SLOTS_EACH, _SPARE_SLOTS = 2, 8


class Balance:
    """What one process does about it.

    The slot is written by the process, and by the master before its start and after its end: one writer at a time, of
    numbers that are stored in one step, needs no lock. *Thread:* the process's main thread.
    """

    def __init__(self, counts: memoryview, slot: int) -> None:
        self.slot = slot
        self._counts = counts
        self._back_at = 0.0
        self._least = _NOBODY  # that another process had when this was last asked
        self._in_vain = 0  # how often connections were left in vain since then, and so how many are taken for it
        self._granted = 0  # of these, those that are to come
        self.withdraw()

    def __repr__(self) -> str:
        return f"<Balance slot={self.slot} told={self._counts[self.slot]} in_vain={self._in_vain}>"

    def tell(self, own: int) -> None:
        """This process accepts, and has `own` connections."""
        self._counts[self.slot] = own

    def withdraw(self) -> None:
        """It does not accept, and nobody is to leave connections to it."""
        self._counts[self.slot] = _NOBODY

    def takes(self, own: int) -> bool:
        """Whether a connection that waits is for this process, which has `own`."""
        least = min(self._counts)  # its own number does no harm among them: it never is too small
        if least != self._least:  # whoever had the fewest takes some, or is there no more
            self._least, self._in_vain, self._granted = least, 0, 0
        if not _is_clearly_more(own, least):
            return True
        if self._granted > 0:
            self._granted -= 1
            return True
        return False

    def leave(self, now: float) -> None:
        """Connections are left to others from now on; now: of the monotonic clock, seconds."""
        self._back_at = now + LEAVE_S

    def is_to_return(self, own: int, now: float) -> bool:
        """Whether this process is to look at the sockets again, and take a connection if one is still there."""
        return now >= self._back_at or not _is_clearly_more(own, min(self._counts))

    def returned(self, own: int) -> None:
        """It has; where the one with the fewest has taken none, more are taken at once, and more each time.

        So the wait does not add up for those who come while that one hangs, whoever of the others takes them. own: how
        many it had before.
        """
        least = min(self._counts)
        was_in_vain = least == self._least and _is_clearly_more(own, least)
        self._in_vain = min(self._in_vain + 1, MOST_IN_VAIN) if was_in_vain else 0
        self._granted = max(0, self._in_vain - 1)


def _is_clearly_more(own: int, least: int) -> bool:
    return own > least + SLACK + least * SLACK_PART


class OpenCounts:
    """The memory in which each process tells how many connections it has. *Thread:* the master's."""

    def __init__(self, slots: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * slots)).cast("i")  # anonymous, shared with all that are forked
        for slot in range(slots):
            self._counts[slot] = _NOBODY

    def balance(self, taken: Collection[int]) -> Balance | None:
        """The part of a process that is about to be made, in a slot that is not taken; None where there is none."""
        free = next((slot for slot in range(len(self._counts)) if slot not in taken), None)
        return None if free is None else Balance(self._counts, free)


def begin(server: Any) -> None:
    """The master listens, and has made no process yet: have several of them share new connections.

    With `reuse_port` each has a socket of its own, and nobody else could take what waits there.
    """
    if server.num_workers > 1 and not server.cfg.reuse_port:
        server.open_counts = OpenCounts(_SLOTS_EACH * server.num_workers + _SPARE_SLOTS)


def assign(server: Any, worker: Any) -> None:
    """The master is about to make a worker process: give it its part, as long as there is room."""
    worker.balance = None
    if hasattr(server, "open_counts"):
        others = [other.balance for other in server.WORKERS.values()]
        worker.balance = server.open_counts.balance({other.slot for other in others if other is not None})


def forget(worker: Any) -> None:
    """A worker process has ended, in whatever way: nobody is to leave connections to it."""
    if worker.balance is not None:
        worker.balance.withdraw()
