"""Which threads serve a request when more clients ask than there are threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from service.server.request_head import asks_for_probe


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
    a request.
    """

    threads: int
    limit: int
    queued_rows: Callable[[], int]
    patience_s: float

    def waiting(self, inside: int) -> int:
        """How many requests wait for a thread, of `inside` that the main threads were given and are not done with."""
        return max(0, inside - self.threads)

    def place(self, inside: int, head: bytes | None, *, is_stopping: bool) -> Place:
        """Where a request goes, when `inside` others have been given to the main threads and are not done.

        head: what has come of it, None where that cannot be seen; then it takes the main way. is_stopping: the service
        takes no new work, and says so at once instead of having the client wait for a thread first.
        """
        if inside < self.threads:
            return Place(Way.MAIN)
        ahead = self.waiting(inside) + self.queued_rows()
        if head is not None and asks_for_probe(head):
            return Place(Way.PROBE, ahead)
        if head is not None and (is_stopping or ahead >= self.limit):
            return Place(Way.SURPLUS, ahead)
        return Place(Way.MAIN, ahead)
