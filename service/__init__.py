"""Jitney's server: dynamic batching for models behind Flask and Gunicorn.

Names are imported when they are first used, so that the environment (thread counts of the numeric libraries) can
still be set by whoever imports this package first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.app import Jitney, create_app
    from service.batching.batcher import ThreadedBatcher
    from service.settings import Settings

_EXPORTS = {
    "Jitney": "service.app",
    "Settings": "service.settings",
    "ThreadedBatcher": "service.batching.batcher",
    "create_app": "service.app",
}

__all__ = ["Jitney", "Settings", "ThreadedBatcher", "create_app"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
