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

    def put(self, item: Item, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002
        """Add an item; there is always room. Without the counts of `join` and `maxsize`, in half the time."""
        with self.mutex:
            self.queue.append(item)
            self.not_empty.notify()

    def drain(self) -> list[Item]:
        """All items that are there now, in their order, possibly none; does not wait. *Thread:* any."""
        with self.mutex:
            items = list(self.queue)
            self.queue.clear()
        return items
