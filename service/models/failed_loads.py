"""The versions whose last load failed, so that requests do not try again and again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from loaders.cache import Key
from service.batching.faults import text_of
from service.errors import NotReady
from service.models.repository import Repository

# For how long requests do not try again to load a version that could not be loaded, unless it has changed on disk.
RETRY_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """A load that failed: why, when (clock reading), and what the files looked like."""

    reason: str
    at: float
    changed_at: float


class FailedLoads:
    """By name and version; without a repository there is nothing to load again.

    *Thread:* the worker adds and forgets; any may ask.
    """

    def __init__(self, repository: Repository | None) -> None:
        self._repository = repository
        self._failed: dict[Key, _Failure] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._failed

    def __len__(self) -> int:
        return len(self._failed)

    def add(self, key: Key, error: Exception, changed_at: float) -> None:
        """A load has failed. changed_at: what the repository said of its files when it began."""
        self._failed[key] = _Failure(text_of(error), time.monotonic(), changed_at)

    def forget(self, key: Key) -> None:
        """The version was loaded, or unloaded."""
        self._failed.pop(key, None)

    def reason(self, key: Key) -> str | None:
        """Why the last load of a version failed; None where it did not."""
        failure = self._failed.get(key)
        return None if failure is None else failure.reason

    def refuse_lately(self, key: Key) -> None:
        """Raise NotReady for a version that failed a short time ago, and has not changed on disk since."""
        failure = self._failed.get(key)
        if failure is None or self._repository is None:
            return
        left_s = failure.at + RETRY_AFTER_S - time.monotonic()
        if left_s > 0 and self._repository.changed_at(*key) == failure.changed_at:
            raise could_not_be_loaded(left_s)


def could_not_be_loaded(retry_after_s: float | None = None) -> NotReady:
    """What a request is told that asked for such a version; for all of `RETRY_AFTER_S` by default."""
    message = "this version of the model could not be loaded; the service's log and GET /models have the reason"
    return NotReady(message, RETRY_AFTER_S if retry_after_s is None else retry_after_s)
