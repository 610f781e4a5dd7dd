"""Every runtime of this process that somebody still holds, for server hooks that cannot see through a wrapped app."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.runtime import Runtime

_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_lock = threading.Lock()  # guards _runtimes, and the renewal of a runtime in a child process


def _free_lock_in_child() -> None:
    """A thread that is not there any more may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_lock_in_child)


def process_lock() -> threading.Lock:
    """What only one thread of this process does at a time, for all its runtimes, is done under it."""
    return _lock


def remember(runtime: Runtime) -> None:
    """Have it found as long as somebody holds it."""
    with _lock:
        _runtimes.add(runtime)


def runtimes() -> list[Runtime]:
    """The runtimes of this process, in no particular order, whatever middleware their apps are wrapped in."""
    with _lock:
        return list(_runtimes)
