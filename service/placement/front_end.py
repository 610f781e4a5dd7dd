"""Which core a front end runs on, whose model is in another process.

The threads of a front end take turns: one has the interpreter, and the others wait for it. On one core a thread that is
woken runs when the one before it is done; on several, it takes part of a core to find that it has to wait.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from service.logs import log_fields
from service.placement import cores
from service.placement.rule import Choice, PlacementMode, WorkerPlace

_log = logging.getLogger("jitney")


class FrontEndPlacement:
    """Where all threads of this process run: decided when it is known what rows the model takes, and put there then.

    slot: tells this front end from the others: neighbours have different cores, as long as there are as many.

    *Thread:* any; a thread that is started by another one while all are put somewhere may be missed.
    """

    def __init__(self, mode: PlacementMode, slot: int, allowed: Sequence[int] | None = None) -> None:
        self._mode = mode
        self._cores = cores.allowed_cores() if allowed is None else tuple(allowed)
        self._one_core = self._cores[slot % len(self._cores) :][:1] if self._cores else ()
        self._wakes_gently = False
        self._choice = Choice(False, WorkerPlace.FREE, "no model has been loaded")

    def __repr__(self) -> str:
        return f"<FrontEndPlacement {self._mode} cores={self._cores} one={self._one_core} {self._choice}>"

    def rows_are_known(self, *, prepares_beside_python: bool) -> None:
        """The model can answer. prepares_beside_python: preparing a row takes long and leaves Python to others."""
        before, self._choice = self._choice, _choose(self._mode, len(self._cores), prepares_beside_python)
        if before.on_one_core or self._choice.on_one_core:
            chosen = self._one_core if self._choice.on_one_core else self._cores
            self._wakes_gently = keep_to(chosen) and self._choice.on_one_core
        if self._choice != before:
            told = self.report()
            message = f"the threads of this front end run on {told['http_threads']}: {told['reason']}"
            log_fields(_log, logging.INFO, message, {"thread_placement": self._mode.value})

    @property
    def on_one_core(self) -> bool:
        """Whether they share a core."""
        return self._choice.on_one_core

    def report(self) -> dict[str, Any]:
        """What holds now and why, in the words of `Placement.report`."""
        return {
            "setting": self._mode.value,
            "http_threads": f"core {self._one_core[0]}" if self._choice.on_one_core else "any core",
            "worker_thread": "any core, in the process that owns the model",
            "wakes_gently": self._wakes_gently,
            "reason": self._choice.why,
            "to_be_measured": None,
        }


def keep_to(chosen: Sequence[int]) -> bool:
    """Have every thread of this process, and those that they start, run on the cores `chosen` only, where it may.

    On a single one, no thread that is woken pushes another one aside; False where the system allows that for none.
    """
    threads = cores.all_threads()
    for thread_id in threads:
        cores.put(thread_id, frozenset(chosen))
    change = cores.let_finish if len(chosen) == 1 else cores.let_push
    return change(threads)


def _choose(mode: PlacementMode, count: int, prepares_beside_python: bool) -> Choice:
    """As `choose` does for a process that calls a model itself."""
    on_one_core, why = False, ""
    if mode is PlacementMode.OFF:
        why = "THREAD_PLACEMENT=off"
    elif count < 2:
        why = "there is one core only" if count else "this system does not place threads"
    elif mode is PlacementMode.PIN:
        on_one_core, why = True, "THREAD_PLACEMENT=pin"
    elif prepares_beside_python:
        why = "pictures are decoded beside other threads"
    else:
        on_one_core, why = True, "the threads of a front end take turns with the interpreter"
    return Choice(on_one_core, WorkerPlace.FREE, why)
