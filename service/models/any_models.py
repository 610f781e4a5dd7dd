"""What a runtime asks of its models, wherever they are: in this process, or in another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from service.batching.any_batcher import AnyBatcher
from service.batching.cost_table import BestSize
from service.models.keeper import ModelKeeper
from service.recent import RecentBatches


class AnyModels(Protocol):
    """`OwnModels` are this process's; a `SharedModel` is another one's."""

    @property
    def is_shared(self) -> bool:
        """Whether another process owns them; then they change when it says so, and not on request."""

    @property
    def keeper(self) -> ModelKeeper:
        """Which models there are."""

    @property
    def recent(self) -> RecentBatches:
        """What ran last; made anew by `new_batcher`."""

    @property
    def is_ready(self) -> bool:
        """Whether all that is served from the start is loaded."""

    @property
    def load_error(self) -> BaseException | None:
        """Why there is no model, and will be none."""

    def new_batcher(self, on_the_way: Callable[[], int]) -> AnyBatcher:
        """What batches for them, not started yet; called once. on_the_way: see `ThreadedBatcher`."""

    def learnt(self) -> list[BestSize] | None:
        """The batches that are best for the default model, by length; None where nothing is learnt. *Thread:* any."""
