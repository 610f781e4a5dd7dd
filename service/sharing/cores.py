"""Which core a front end runs on.

The threads of a front end take turns: one has the interpreter, and the others wait for it. On one core a thread that is
woken runs when the one before it is done; on several, it takes part of a core to find that it has to wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from loaders.signature import ImageInput, InputSpec
from service.placement.cores import all_threads, let_finish, let_push, put


def core_for(slot: int, cores: Sequence[int]) -> int:
    """One of `cores`: front ends of neighbouring slots have different ones, as long as there are as many."""
    return cores[slot % len(cores)]


def keep_to(cores: Sequence[int]) -> None:
    """Have every thread of this process, and those that they start, run on `cores` only. Does nothing where it may not.

    On a single one, no thread that is woken pushes another one aside.

    *Thread:* any; a thread that is started meanwhile by another one may be missed.
    """
    threads = all_threads()
    for thread_id in threads:
        put(thread_id, frozenset(cores))
    change = let_finish if len(cores) == 1 else let_push
    change(threads)


def works_without_interpreter(spec: InputSpec) -> bool:
    """Whether preparing a row takes long and lets other threads run meanwhile, so that more cores are of use."""
    return isinstance(spec, ImageInput)
