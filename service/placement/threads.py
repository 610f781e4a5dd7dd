"""The threads of a serving process, and putting them where they run best."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from service.logs import log_fields
from service.placement import cores
from service.placement.rule import Choice, Cost, PlacementMode, WorkerPlace, choose

_log = logging.getLogger("jitney")


class Placement:
    """Where the threads of this process run: one for a process, made before any of its threads is put anywhere.

    HTTP threads call `http_thread_starts`; each worker thread has a `WorkerSeat`. As the models are measured, or leave,
    everybody is placed anew.

    turn: a number of this process that no other process of the service has: they take different cores.
    has_other_work, instances: see `choose`.

    One lock guards the costs, the choice and the HTTP threads; it is held while threads are placed, so that of two
    choices the later one stays.
    """

    def __init__(
        self,
        mode: PlacementMode,
        *,
        turn: int = 0,
        has_other_work: bool = False,
        instances: int = 1,
        allowed: tuple[int, ...] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._mode = mode
        self._has_other_work = has_other_work
        self._instances = instances
        self._cores = cores.allowed_cores() if allowed is None else allowed
        self.any_core = frozenset(self._cores)
        self.one_core = frozenset(self._cores[turn % len(self._cores) :][:1]) if self._cores else frozenset()
        # With the system's ids as each thread is told it: a `Thread` that lived through a fork knows its parent's.
        self._http_threads: weakref.WeakKeyDictionary[threading.Thread, int] = weakref.WeakKeyDictionary()
        self._costs: dict[Hashable, Cost] = {}
        self._is_batch = False
        self._choice = choose(PlacementMode.OFF, len(self._cores), ())
        self._choice = self._choice._replace(why="no model has been loaded")

    def __repr__(self) -> str:
        return f"<Placement {self._mode} cores={self._cores} one={set(self.one_core)} {self._choice}>"

    @property
    def choice(self) -> Choice:
        """What holds now. *Thread:* any."""
        return self._choice

    @property
    def measures(self) -> bool:
        """Whether it matters what a model costs: if not, nothing need be measured."""
        if len(self._cores) < 2:
            return False
        if self._instances > 1:
            return True  # not to place threads, but to tell whether copies are of use
        if self._mode is PlacementMode.OFF:
            return False
        return self._mode is PlacementMode.PIN or not self._has_other_work

    def http_thread_starts(self) -> None:
        """Called first by each thread that serves HTTP, or hands it out. *Thread:* that one."""
        with self._lock:
            thread_id = self._http_threads[threading.current_thread()] = threading.get_native_id()
            if self._choice.on_one_core:
                cores.put(thread_id, self.one_core)
                cores.let_finish([thread_id])

    def model_costs(self, model: Hashable, cost: Cost) -> None:
        """A model is warm, or has been measured since. *Thread:* any."""
        with self._lock:
            self._costs[model] = cost
            self._decide()

    def model_left(self, model: Hashable) -> None:
        """A model is served no longer. *Thread:* any."""
        with self._lock:
            self._costs.pop(model, None)
            if self._costs:
                self._decide()

    def report(self) -> dict[str, Any]:
        """What holds now and why, of plain JSON types."""
        choice, one = self._choice, _named(self.one_core)
        worker = {
            WorkerPlace.SHARED: one,
            WorkerPlace.BETWEEN_CALLS: f"{one}, any core while the model runs",
            WorkerPlace.FREE: "any core",
        }
        return {
            "setting": self._mode.value,
            "http_threads": one if choice.on_one_core else "any core",
            "worker_thread": worker[choice.worker],
            "wakes_gently": self._is_batch,
            "reason": choice.why,
        }

    def _decide(self) -> None:
        choice = choose(
            self._mode,
            len(self._cores),
            self._costs.values(),
            has_other_work=self._has_other_work,
            instances=self._instances,
        )
        before, self._choice = self._choice, choice
        if choice.on_one_core != before.on_one_core:
            self._place_http_threads()
        if choice != before:
            told = self.report()
            message = f"HTTP threads run on {told['http_threads']}, the worker thread on {told['worker_thread']}"
            level = logging.WARNING if choice.is_makeshift else logging.INFO
            log_fields(_log, level, f"{message}: {told['reason']}", {"thread_placement": self._mode.value})

    def _place_http_threads(self) -> None:
        on_one_core = self._choice.on_one_core
        for thread, thread_id in self._http_threads.items():
            if thread.is_alive():  # if not, the number may have passed to a thread of another program
                cores.put(thread_id, self.one_core if on_one_core else self.any_core)
        # All threads, as a worker thread that is woken pushes aside whoever has filled its queue.
        change: Callable[[list[int]], bool] = cores.let_finish if on_one_core else cores.let_push
        self._is_batch = change(cores.all_threads()) and on_one_core


class WorkerSeat:
    """The place of the worker thread, which moves when the thread itself is about to call a model. Several of them are
    never anywhere but on any core, so that one seat tells of all.

    It is never on one core while a model is loaded and warmed up: the native threads of a library begin where the
    thread runs that needs them first, and stay there.

    *Thread:* the worker's own.
    """

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._at: frozenset[int] | None = None  # None: where whoever started the thread has left it

    def loads(self) -> None:
        """A model is about to be loaded."""
        self._move(self.placement.any_core)

    def calls(self) -> None:
        """A model is about to be called with the rows of callers."""
        is_shared = self.placement.choice.worker is WorkerPlace.SHARED
        self._move(self.placement.one_core if is_shared else self.placement.any_core)

    def called(self) -> None:
        """That call has ended."""
        if self.placement.choice.worker is WorkerPlace.BETWEEN_CALLS:
            self._move(self.placement.one_core)

    def _move(self, where: frozenset[int]) -> None:
        if where != self._at and where:
            cores.put(0, where)
            self._at = where


def _named(one_core: frozenset[int]) -> str:
    return "".join(f"core {core}" for core in one_core)
