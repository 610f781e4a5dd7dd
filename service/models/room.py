"""Loading a model on the worker thread as soon as there is room for it in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from service.batching.any_batcher import AnyBatcher
from service.errors import DeadlineExceeded
from service.models.keeper import ModelKeeper

# How often a request that waits for room in memory looks whether there still is somebody to make it, seconds.
_CHECK_S = 0.25

# Why a request for a model that was not loaded may end without an answer, and what changes that.
_NOT_IN_TIME = "the model had to be loaded first; MODEL_CACHE_SIZE versions stay loaded, REQUEST_TIMEOUT_MS"


def load_with_room(
    load: Callable[[], Any],
    keeper: ModelKeeper,
    batcher: Callable[[], AnyBatcher],
    *,
    deadline: float,
    is_gone: Callable[[], bool] | None,
) -> Any:
    """Have the worker thread load a model, as soon as so many others are not in use that there is room for it.

    load: something that is not true as long as there is no room. deadline: when to give up, `time.monotonic()`.
    is_gone: see `ThreadedBatcher.ask`. Raises what `load` and `batcher` raise, DeadlineExceeded, or ClientGone.
    """
    began = time.monotonic()
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded(time.monotonic() - began, _NOT_IN_TIME)
        try:
            loaded = batcher().call(load, left_s, is_gone=is_gone)
        except DeadlineExceeded:
            continue
        if loaded:
            return loaded
        # In slices, because the worker that would make room may die, and the client may leave.
        keeper.wait_for_room(min(left_s, _CHECK_S))
