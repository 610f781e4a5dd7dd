"""Going on without a process that could not start.

gunicorn's master ends the whole service when one process cannot start, lest it start it for ever. That is right as long
as nobody serves, and takes the service from its clients where others do: after a reload of code that cannot be
imported, or when a killed process, or one more that a signal asks for, finds a model that cannot be loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gunicorn.errors import HaltServer

# How long the master waits before it replaces a process that could not start: each try may load a whole model.
RETRY_S = 10.0


class FailedStarts:
    """Has gunicorn's master outlive such processes as long as others serve. It takes the place of three of its methods.

    At the start of a service, when nobody has served before, the first failure ends it, with one exit status however
    many processes fail. *Thread:* the master's.
    """

    def __init__(self, server: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._retry_at = clock()
        self._is_stopping = False
        self._reap: Callable[[], None] = server.reap_workers
        self._spawn: Callable[[], None] = server.spawn_workers
        self._stop: Callable[[bool], None] = server.stop
        server.reap_workers = self.reap_workers
        server.spawn_workers = self.spawn_workers
        server.stop = self.stop

    def stop(self, graceful: bool = True) -> None:
        """Whatever the processes end with now, the exit status is settled."""
        self._is_stopping = True
        self._stop(graceful)

    def reap_workers(self) -> None:
        """Called at each end of a process, and again and again while the service stops. May raise HaltServer."""
        while True:
            before = list(self._server.WORKERS.items())
            try:
                return self._reap()
            except HaltServer:
                ended = [worker for pid, worker in before if pid not in self._server.WORKERS]
                if not self._is_stopping and not self._can_go_on_without(ended):
                    raise
                for worker in ended:  # the master has not come so far with the last one, and twice does no harm
                    worker.tmp.close()
                    self._server.cfg.child_exit(self._server, worker)

    def spawn_workers(self) -> None:
        """Called about once a second while there are too few processes."""
        if self._clock() >= self._retry_at or not self._serving():
            self._spawn()

    def _can_go_on_without(self, ended: list[Any]) -> bool:
        """Whether others serve, and did when these were started; says so, and puts the next try off."""
        server, serving = self._server, self._serving()
        if not serving or not any(worker.succession.is_relief for worker in ended):
            return False
        self._retry_at = self._clock() + RETRY_S
        lacks = len(server.WORKERS) < server.num_workers
        then = f"the next try is in {RETRY_S:.0f} s" if lacks else "none is lacking"
        server.log.critical("a process could not start; %d others go on to serve, and %s", serving, then)
        return True

    def _serving(self) -> int:
        places = [worker.succession for worker in self._server.WORKERS.values()]
        return sum(one.serves and not one.is_retiring for one in places)
