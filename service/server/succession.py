"""How one worker process takes over from another without a moment in which nobody answers.

gunicorn's master starts a new process and stops an old one in the same moment, and a model takes long to load. Here the
old one goes on until the new one serves, and the new one leaves the clients to it until then.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from contextlib import suppress
from signal import SIGTERM
from typing import Any


class Succession:
    """The place of one worker process among the others; made in the master, before the fork.

    `is_relief`: another process serves while this one loads. `is_surplus`: and as many of them as are wanted, so that
    nothing is lost should this one fail. `is_retiring`: it was told to stop; known to the master only.
    `shares_listeners`: somebody beside this master and its processes has the listening sockets, and goes on with them
    when these end. Written by the master, read by the process.
    """

    def __init__(self, *, is_relief: bool = False, is_surplus: bool = False) -> None:
        self.is_relief = is_relief
        self.is_surplus = is_surplus
        self.is_retiring = False
        self._memory = mmap.mmap(-1, 2)  # shared by master and worker; a byte with one writer needs no lock

    def __repr__(self) -> str:
        return f"<Succession serves={self.serves} is_relief={self.is_relief} is_retiring={self.is_retiring}>"

    @property
    def serves(self) -> bool:
        """Whether the process can answer, or never will any better. *Thread:* any, of the master too."""
        return self._memory[0] == 1

    def begin(self) -> None:
        """From now on it can. *Thread:* any of the worker process."""
        self._memory[0] = 1

    @property
    def shares_listeners(self) -> bool:
        return self._memory[1] == 1

    @shares_listeners.setter
    def shares_listeners(self, value: bool) -> None:
        self._memory[1] = value

    @property
    def may_accept(self) -> bool:
        """Whether new connections are for this process, and not only for those that serve already."""
        return self.serves or not self.is_relief


def kept(oldest_first: Sequence[Succession], wanted: int) -> list[Succession]:
    """Those of the surplus processes, the oldest ones, that must go on: without them fewer than `wanted` would serve.

    The younger ones among these are kept: they have what was reloaded last.
    """
    serving = [one for one in oldest_first if one.serves and not one.is_retiring]
    surplus = oldest_first[: max(0, len(oldest_first) - wanted)]
    lacking = wanted - sum(one not in surplus for one in serving)
    return [one for one in serving if one in surplus][-lacking:] if lacking > 0 else []


def place(server: Any) -> Succession:
    """The place of the process that the master is about to make."""
    others = [worker.succession for worker in server.WORKERS.values()]
    serving = sum(one.serves and not one.is_retiring for one in others)
    # Where this master is to replace another one, that one's processes serve until these do.
    made = Succession(is_relief=serving > 0 or server.master_pid != 0, is_surplus=serving >= server.num_workers)
    made.shares_listeners = _shares_listeners(server)
    return made


def _shares_listeners(server: Any) -> bool:
    """Whether whoever started this master has the sockets too, or the one that it replaces, or is replaced by."""
    is_given = server.systemd or any(isinstance(address, int) for address in server.cfg.address)  # fd://3
    return bool(is_given or server.master_pid or server.reexec_pid)


class _OnlyWaits(Exception):
    """All that is left of a reload is gunicorn's wait for the end of the old processes."""


class Relief:
    """Has gunicorn's master stop no process that is still needed. It takes the place of three of the master's methods.

    *Thread:* the master's.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._manage: Callable[[], None] = server.manage_workers
        self._reload: Callable[[], None] = server.reload
        self._is_reloading = False
        self._murder: Callable[[], None] = server.murder_workers
        server.manage_workers = self.manage_workers
        server.murder_workers = self.murder_workers
        server.reload = self.reload

    def reload(self) -> None:
        """SIGHUP. The old processes go in their own time: while it waits for their end, gunicorn hears no signal."""
        self._is_reloading = True
        with suppress(_OnlyWaits):
            self._reload()
        self._is_reloading = False

    def murder_workers(self) -> None:
        """Called about once a second: gunicorn's own way, but for processes that load a model.

        A library may hold the interpreter while it loads one, and then the process gives no sign of life, however well.
        """
        for worker in self._server.WORKERS.values():
            if not worker.succession.serves:
                worker.tmp.notify()
        self._murder()

    def manage_workers(self) -> None:
        """Called about once a second, and at every signal: gunicorn's own way where nobody has to be kept."""
        server = self._server
        for worker in server.WORKERS.values():
            worker.succession.shares_listeners = _shares_listeners(server)
        oldest_first = sorted(server.WORKERS.items(), key=lambda entry: entry[1].age)
        needed = kept([worker.succession for _, worker in oldest_first], server.num_workers)
        for pid, worker in oldest_first[: max(0, len(oldest_first) - server.num_workers)]:
            if worker.succession not in needed:
                worker.succession.is_retiring = True
                if needed:
                    server.kill_worker(pid, SIGTERM)
        if not needed:
            self._manage()
        if self._is_reloading:
            raise _OnlyWaits
