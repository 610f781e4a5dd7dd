"""The cores that a process may use, and putting its threads there. Elsewhere than on Linux nothing is possible."""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")


def allowed_cores() -> tuple[int, ...]:
    """The cores that the calling thread may run on, rising, as its container and its parent have set them.

    A thread that has been put on one core knows of no other: ask before. Empty where the system cannot tell.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def put(thread_id: int, cores: Set[int]) -> bool:
    """Let a thread run on `cores` only, from its next look at the processor; False where that is not possible.

    thread_id: the system's, 0 for the calling thread. Threads that it starts from then on begin there too, native ones
    included.
    """
    with suppress(OSError, AttributeError, ValueError):  # the thread has ended, or a filter forbids the call
        os.sched_setaffinity(thread_id, cores)
        return True
    return False


def all_threads() -> list[int]:
    """The system's ids of the threads of this process, native ones included."""
    with suppress(OSError):
        return [int(entry.name) for entry in _TASKS.iterdir()]
    return []


def let_finish(thread_ids: Iterable[int]) -> bool:
    """Let no thread of these push another one aside when it is woken (SCHED_BATCH); it waits for a core instead.

    Whoever wakes a thread in Python holds the interpreter that this one needs first: to run it at once is in vain.
    Threads of a class that somebody has chosen stay in it. False where the system allows it for none.
    """
    return _change_class(thread_ids, "SCHED_OTHER", "SCHED_BATCH")


def let_push(thread_ids: Iterable[int]) -> bool:
    """Undo `let_finish`."""
    return _change_class(thread_ids, "SCHED_BATCH", "SCHED_OTHER")


def _change_class(thread_ids: Iterable[int], before: str, after: str) -> bool:
    changed = False
    for thread_id in thread_ids:
        with suppress(OSError, AttributeError):  # as above, for each thread by itself
            if os.sched_getscheduler(thread_id) == getattr(os, before):
                os.sched_setscheduler(thread_id, getattr(os, after), os.sched_param(0))
                changed = True
    return changed
