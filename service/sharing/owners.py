"""The part of gunicorn's master: it starts owners, replaces them, and ends those that no front end needs any more.

Loads nothing that a master must not load: what an owner needs is imported in the owner.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gunicorn import util

from service.metrics import directory
from service.sharing.place import NoPlace, Place

# An owner that ended before it had served is started again after this, seconds, then after twice as long, and so on.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 16.0

# How much longer than its front ends an owner may take to end before it is killed, seconds.
END_S = 4.0

# With what an owner ends whose model has failed: neither 3 nor 4, which gunicorn takes for the end of everything.
_FAULT = 1


class _Generation:
    """One owner and those that replaced it, all at one place. `pid`: None while none runs. `end`: how that one has
    ended, as the end of a sentence; None while it has not, as far as is known.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.pid: int | None = None
        self.end: str | None = None
        self.start_at = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.is_retiring = False

    def has_ended(self) -> bool:
        """Whether the owner that was running has."""
        if self.pid is not None and self.end is None:
            self.end = _end_of(self.pid)
        return self.end is not None

    def __repr__(self) -> str:
        return f"<_Generation pid={self.pid} serves={self.place.serves} is_retiring={self.is_retiring}>"


class Owners:
    """Keeps one owner for each generation of front ends. It takes the place of two of the master's methods.

    `own(place, master_ends)` is the owner's life; it runs in a new process, and its result says whether that ended as
    it should. A reload makes a new owner, which loads beside the old one; front ends stay with the owner that they were
    started for, and that one ends when the last of them has.

    *Thread:* the master's.
    """

    def __init__(
        self, server: Any, own: Callable[[Place, int], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._own = own
        self._clock = clock
        self._generations: list[_Generation] = []
        # Whoever reads it learns when this process, and all that it has started, is gone.
        self._master_ends, self._master_lives = os.pipe()
        self._manage: Callable[[], None] = server.manage_workers
        server.manage_workers = self.manage_workers
        self._reap: Callable[[], None] = server.reap_workers
        server.reap_workers = self.reap_workers
        self.renew()

    def renew(self) -> None:
        """Start an owner for the front ends that are made from now on."""
        try:
            generation = _Generation(Place((self._server.cfg.uid, self._server.cfg.gid)))
        except NoPlace as fault:
            if not self._generations:
                sys.exit(f"jitney: {fault}")
            self._server.log.critical("%s; the processes keep the model that is loaded", fault)
            return
        self._generations.append(generation)
        self._start(generation)

    def assign(self, worker: Any) -> None:
        """Tell a front end that is about to be made which owner is its own, and which slot it has.

        Slots are numbers from 0 that as few as possible have in common: two do where one is to relieve the other.
        """
        worker.owner = self._current().place
        taken = [other.slot for other in self._server.WORKERS.values()]
        worker.slot = min(range(max(1, self._server.num_workers)), key=taken.count)

    def reap_workers(self) -> None:
        """Called when a process has ended. gunicorn asks how any child has, and can be told so only once of each."""
        for generation in self._generations:
            generation.has_ended()
        self._reap()

    def manage_workers(self) -> None:
        """Called about once a second, and whenever a process has ended."""
        self.tend()
        self._manage()

    def tend(self) -> None:
        """Replace owners that have ended, and have those end that nobody needs."""
        used = {id(worker.owner) for worker in self._server.WORKERS.values()}
        for generation in list(self._generations):
            if generation.has_ended():
                self._note_end(generation)
            is_needed = generation is self._current() or id(generation.place) in used
            if not is_needed:
                self._retire(generation)
            elif generation.pid is None and not generation.place.has_failed and self._clock() >= generation.start_at:
                self._start(generation)

    def end(self) -> None:
        """The front ends have ended: end every owner, and wait for that."""
        running = [one for one in self._generations if one.pid is not None]
        for generation in running:
            _signal(generation.pid, signal.SIGTERM)
        give_up_at = self._clock() + END_S
        while running and self._clock() < give_up_at:
            running = [one for one in running if not one.has_ended()]
            time.sleep(0.02)
        for generation in running:
            self._server.log.error("the process that owns the model does not end, and is killed")
            _signal(generation.pid, signal.SIGKILL)
        for generation in self._generations:
            generation.place.close()

    def _current(self) -> _Generation:
        """The newest one that may serve: front ends of one whose load has failed could not either."""
        sound = [one for one in self._generations if not one.place.has_failed]
        return (sound or self._generations)[-1]

    def _start(self, generation: _Generation) -> None:
        generation.place.vacate()
        pid = os.fork()
        if pid == 0:
            self._become(generation)
        generation.pid, generation.end = pid, None
        self._server.log.info("the model's owner starts with pid %s", pid)

    def _note_end(self, generation: _Generation) -> None:
        """Whether an owner had served decides what follows its end; how that came is for who looks for the reason."""
        pid, how = generation.pid, generation.end
        if directory.counts_together() and pid is not None:
            directory.forget_process(pid)
        generation.pid = generation.end = None
        if generation.is_retiring:
            return
        if generation.place.serves:
            generation.pause_s = FIRST_PAUSE_S
            generation.start_at = self._clock()
        else:
            generation.start_at = self._clock() + generation.pause_s
            generation.pause_s = min(2 * generation.pause_s, LONGEST_PAUSE_S)
        self._server.log.critical(
            "the process that owns the model (pid %s) has ended%s; the next one starts in %.0f s",
            *(pid, how),
            max(0.0, generation.start_at - self._clock()),
        )

    def _retire(self, generation: _Generation) -> None:
        if generation.pid is None:
            generation.place.close()
            self._generations.remove(generation)
        elif not generation.is_retiring:
            generation.is_retiring = True
            _signal(generation.pid, signal.SIGTERM)

    def _become(self, generation: _Generation) -> None:
        """In the new process: forget that it was a master, own the model, and end."""
        status = _FAULT
        try:
            server, cfg = self._server, self._server.cfg
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in server.SIGNALS:  # a terminal tells all processes; this one goes by what the master says
                signal.signal(number, signal.SIG_IGN)
            os.environ.update(cfg.env)
            util.set_owner_process(cfg.uid, cfg.gid, initgroups=cfg.initgroups)
            os.close(self._master_lives)
            for listener in server.LISTENERS:
                listener.close()
            for other in self._generations:
                if other is not generation:
                    other.place.listener.close()
            status = 0 if self._own(generation.place, self._master_ends) else _FAULT
        except BaseException:
            self._server.log.exception("the process that owns the model failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _end_of(pid: int) -> str | None:
    """How a child has ended, as the end of a sentence, empty where somebody else was told; None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return ""
    if ended != pid:
        return None
    code = os.waitstatus_to_exitcode(status)
    return f" with status {code}" if code >= 0 else f" by {signal.Signals(-code).name}"


def _signal(pid: int | None, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, number)
