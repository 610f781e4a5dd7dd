"""`DrainedQueue`: the standard queue, from which one reader takes all that is there at once."""

from __future__ import annotations

import queue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class DrainedQueue(queue.Queue[Item], Generic[Item]):
    """A `queue.Queue` without a limit that can also be emptied in one step.

    Taking item after item, the reader would get and give back the queue's lock for each, and each time perhaps find it
    with a thread that is just putting another one in.
    """

    def __init__(self) -> None:
        super().__init__()

    def drain(self) -> list[Item]:
        """All items that are there now, in their order, possibly none; does not wait. *Thread:* any."""
        with self.mutex:
            items = list(self.queue)
            self.queue.clear()
        return items
