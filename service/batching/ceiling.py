"""The batch size that memory allows right now."""

from __future__ import annotations

import threading

# Full batches that must succeed before the ceiling is raised by one row.
RAISE_AFTER = 20


class Ceiling:
    """Halves when a batch runs out of memory, grows by one row after `RAISE_AFTER` good batches at the ceiling.

    *Thread:* any worker's; anyone may read `rows`. The lock guards both fields, so that two batches that end at once
    never raise it above the size that is allowed.
    """

    def __init__(self, max_batch_size: int) -> None:
        self._lock = threading.Lock()
        self._max_batch_size = max_batch_size
        self._good = 0
        self.rows = max_batch_size

    def __repr__(self) -> str:
        return f"<Ceiling {self.rows} of {self._max_batch_size}>"

    def lower(self, failed_size: int) -> None:
        """A batch of `failed_size` rows did not fit."""
        with self._lock:
            self.rows = max(1, min(self.rows, failed_size // 2))
            self._good = 0

    def succeeded(self, size: int) -> None:
        """A batch of `size` rows ran in one piece."""
        if self.rows == self._max_batch_size:
            return  # as nearly always, and without the lock: a batch that ran out of memory meanwhile did not run well
        with self._lock:
            if self.rows == self._max_batch_size or size < self.rows:
                return
            self._good += 1
            if self._good >= RAISE_AFTER:
                self.rows += 1
                self._good = 0
