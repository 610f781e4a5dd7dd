"""What a server asks of a batcher, wherever its model is: in this process, or in another one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from service.batching.admission import Arrival
from service.batching.course import Course
from service.batching.status import BatcherStatus
from service.batching.tickets import Answer, Priority


class AnyBatcher(Protocol):
    """Every method promises what the one of `ThreadedBatcher` does."""

    def start(self) -> None: ...

    def wait_started(self, timeout_s: float) -> bool: ...

    def close(self, timeout_s: float = 30.0) -> bool: ...

    def ask(
        self,
        rows: Sequence[Any],
        timeout_s: float | None = None,
        *,
        key: Hashable = None,
        lengths: Sequence[int] | None = None,
        priority: Priority = Priority.NORMAL,
        arrival: Arrival | None = None,
        is_gone: Callable[[], bool] | None = None,
        origin: object | None = None,
        request_id: str = "",
        course: Course | None = None,
    ) -> Answer: ...

    def call(
        self, run: Callable[[], Any], timeout_s: float | None = None, *, is_gone: Callable[[], bool] | None = None
    ) -> Any: ...

    def post(self, run: Callable[[], Any]) -> None: ...

    def announce(self) -> Arrival: ...

    def status(self, belongs: Callable[[Any], bool] | None = None) -> BatcherStatus: ...

    @property
    def effective_max_batch_size(self) -> int: ...

    @property
    def queued(self) -> int: ...

    def retry_after_s(self, queued: int) -> float: ...
