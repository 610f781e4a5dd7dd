"""Which threads serve a request when more clients ask than there are threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from service.server.request_head import MAX_HEAD_BYTES, asks_for_probe

# The longest body that is waited for where no app has said it.
MAX_BODY_BYTES = 16 * 1024 * 1024


class Way(StrEnum):
    """The threads that serve a request."""

    MAIN = "main"  # those that predict; when all are taken, the request waits for one
    PROBE = "probe"  # a few that are kept free for probes
    SURPLUS = "surplus"  # a few that do nothing but refuse


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes. `ahead`: rows and requests that wait at this moment, each counted as one."""

    way: Way
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Overload:
    """Decides where a request goes.

    Rows that wait for a batch and requests that wait for a thread are one queue with one limit: what a request that
    waits for a thread holds is not known yet, and it counts as one row. `threads`: those that predict. `limit`: how
    much may wait. `queued_rows`: how many rows wait for a batch now. `patience_s`: how long a client may take to send
    a request. `max_body_bytes`: how much of it the app would read.
    """

    threads: int
    limit: int
    queued_rows: Callable[[], int]
    patience_s: float
    max_body_bytes: int = MAX_BODY_BYTES

    def waiting(self, inside: int) -> int:
        """How many requests wait for a thread, of `inside` that the main threads were given and are not done with."""
        return max(0, inside - self.threads)

    def place(self, inside: int, arrived: bytes | bytearray, *, is_stopping: bool) -> Place:
        """Where a request goes, when `inside` others have been given to the main threads and are not done.

        arrived: what has come of it, its request line at least. is_stopping: the service takes no new work, and says
        so at once instead of having the client wait for a thread first.
        """
        if inside < self.threads:
            return _MAIN
        ahead = self.waiting(inside) + self.queued_rows()
        if asks_for_probe(bytes(arrived[:MAX_HEAD_BYTES])):
            return Place(Way.PROBE, ahead)
        if is_stopping or ahead >= self.limit:
            return Place(Way.SURPLUS, ahead)
        return Place(Way.MAIN, ahead)


_MAIN = Place(Way.MAIN)
