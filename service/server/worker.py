"""The worker process under gunicorn: it takes connections, has their requests served, and comes to a clean end.

* The main thread waits for all clients at once, reads what they send, and gives a request to a thread when all of it
  has come: clients that are silent or slow hold no thread, see `service.server.reception`.
* Who may have a thread is decided before, see `service.server.overload`: requests beyond what may wait are refused at
  once by threads that do nothing else, and probes are answered by threads kept for them.
* gunicorn's C parser makes the app's variables of a head, and an answer is sent in one piece. What that does not carry
  goes through gunicorn's own parser, see `service.server.slow_path`; so do all verdicts over what is no request.
* When the server stops, idle connections are closed at once, unfinished requests after a second, and connections that
  the kernel has completed are answered. gunicorn's master closes its listening sockets at SIGTERM, but each worker
  keeps its copy open without accepting from it, and the kernel resets what waits there when the worker ends: a client
  cannot tell that from a request that was lost half way.
* Several processes share new connections evenly, see `service.server.balance`.
* While it loads, new connections are left to the processes that serve already, see `service.server.succession`; and
  when it is told to stop because another one serves, requests that still come on its connections are answered.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.workers import base

from service.server.balance import LOOK_AGAIN_S, Balance
from service.server.closing_listeners import is_held_by, let_nobody_else_in
from service.server.connection import Connection, State
from service.server.departures import Departures
from service.server.environs import Environs
from service.server.overload import Overload, Way
from service.server.poller import Poller
from service.server.reception import Reception
from service.server.refuser import Refuser
from service.server.serving import Serving
from service.server.succession import Succession
from service.server.threads import Crew
from service.server.traffic import Traffic
from service.settings import SPARE_THREADS, SettingsError

# What a stopping server still gives kept connections, and requests whose last bytes have not come.
STOP_IDLE_S = 0.3
# The first of these where another process has taken over: nobody waits for the end, and each client that sends another
# request meanwhile is told to close, and loses none.
RELIEVED_IDLE_S = 2.0
STOP_UNFINISHED_S = 1.0

# How often the main thread looks at what has run out of time, and how often where that is soon.
LOOK_S = 0.5
SOON_S = 0.1

# How long threads may take to end that have nothing more to do.
THREADS_END_S = 1.0


class Worker(base.Worker):  # type: ignore[misc]
    """*Thread:* everything but what says otherwise runs on the main thread.

    `on_thread_start`: called first of all on each HTTP thread. `shares_core()`: whether these run on one core now. Both
    are to be set before the main loop begins.
    """

    on_thread_start: Callable[[], None] | None = None
    shares_core: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.worker_connections: int = self.cfg.worker_connections
        self.succession: Succession  # set by the master before the fork
        self.balance: Balance | None = None  # set likewise, where there are several processes
        self.traffic = Traffic(self.worker_connections - self.cfg.threads, bool(self.cfg.keepalive))
        self._refuser = Refuser(self.cfg, self.log)
        self.alive: bool
        self._is_accepting = False
        self._is_away = False  # accepts, and leaves what comes now to other processes
        self._look_at = 0.0
        self._stop_at: float | None = None
        self._hurry = False

    # What the service asks of it.

    def leave_soon(self) -> None:
        """Stop without waiting for clients; for a process that cannot answer anything any more. *Thread:* any."""
        self._hurry = True
        os.kill(os.getpid(), 15)

    def limit_waiting(self, overload: Overload) -> None:
        """Refuse what is beyond a limit, from now on; the app must refuse, or answer, all that has `AHEAD`."""
        self.traffic.overload = overload

    def count_unseen_with(self, counters: Sequence[Callable[[str, int, float], None]]) -> None:
        """Tell these from now on the method, status and seconds of what is answered here and not by the app."""
        self._refuser.counters = counters

    @property
    def is_relieved(self) -> bool:
        """Whether this process stops, and the service does not: what still comes here is answered as ever."""
        return self.traffic.is_relieved

    @property
    def nr_conns(self) -> int:
        """How many connections are open. *Thread:* any."""
        return len(self.traffic.open)

    @property
    def waiting(self) -> int:
        """How many requests wait for a thread. *Thread:* any."""
        return self.traffic.waiting

    @property
    def on_the_way(self) -> int:
        """How many requests have come, to be predicted, and have no rows on the batcher yet. *Thread:* any."""
        return len(self.traffic.on_the_way)

    # Life.

    def init_process(self) -> None:
        """All of a process's life. Settings that only it could judge end it with a message as the master's own do."""
        self._poller = Poller()
        try:
            super().init_process()
        except SettingsError as error:
            self.log.critical("wrong settings: %s", error)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    def run(self) -> None:
        """The main loop, and what follows it."""
        self._poller.watch_pipe(self.PIPE[0])  # where Python tells of signals
        self._open()
        while self.alive:
            if self._is_accepting != self._may_accept():
                self._set_accepting(not self._is_accepting)
            self._turn(time.monotonic())
            if not self._is_parent_alive():
                break
        self.alive = False
        self.traffic.stops = True
        self._stop()
        for crew in self._crews.values():
            crew.end(THREADS_END_S)
        self._poller.close()

    def _open(self) -> None:
        """Put together what serves requests."""
        self._environs = environs = Environs(self.cfg, self.traffic)
        self._departures = Departures(self._poller, self.traffic)
        self._reception = Reception(
            self._poller,
            self.traffic,
            environs.parser,
            self._departures,
            self.cfg.threads,
            self.cfg.keepalive,
            self._hand_over,
            self._refuse,
            self._fail,
        )
        serving = Serving(
            self.wsgi,
            self.cfg,
            self.log,
            self.traffic,
            self._reception,
            self._departures,
            self._refuser,
            self.shares_core,
        )
        sizes = {Way.MAIN: self.cfg.threads, Way.PROBE: SPARE_THREADS // 2, Way.SURPLUS: SPARE_THREADS // 2}
        names = {Way.MAIN: "http", Way.PROBE: "http-probe", Way.SURPLUS: "http-surplus"}
        self._crews = {way: Crew(names[way], sizes[way], serving.serve, self.on_thread_start) for way in Way}

    def _turn(self, now: float) -> None:
        """Wait for clients, do what they want, and look at what has run out of time when it is time for that."""
        if now >= self._look_at:
            self.notify()
            self._look(now)
            is_soon = self._stop_at is not None or self._is_full() or self._reception.has_half
            self._look_at = now + (SOON_S if is_soon else LOOK_S)
        if self._is_away:
            self._look_again(now)
        wait_s = LOOK_AGAIN_S if self._is_away else self._look_at - now
        self._reception.received(self._poller.wait(max(0.0, wait_s)))

    def _look(self, now: float) -> None:
        self._reception.look(now)
        if self._is_accepting:
            self._tell_others()
        if self._stop_at is not None:
            self._hasten(now - self._stop_at)
        elif self._is_full():
            self._reception.make_room(now)

    def _is_parent_alive(self) -> bool:
        if self.ppid == os.getppid():
            return True
        self.log.info("the master is gone, and this process ends: %s", self)
        return False

    # Connections.

    def _is_full(self) -> bool:
        return len(self.traffic.open) >= self.worker_connections

    def _may_accept(self) -> bool:
        return self.alive and self.succession.may_accept and not self._is_full()

    def accept_now(self) -> None:
        """New connections are for this process from now on. *Thread:* any."""
        self._poller.wake()

    def _set_accepting(self, is_accepting: bool) -> None:
        self._is_accepting = is_accepting
        self._is_away = False
        self._set_watching(is_accepting)
        if is_accepting:
            self._tell_others()
        elif self.balance is not None:
            self.balance.withdraw()

    def _set_watching(self, is_watching: bool) -> None:
        for listener in self.sockets:
            if is_watching:
                listener.setblocking(False)
                self._poller.watch(listener, partial(self._accept_one, listener))
            else:
                self._poller.unwatch(listener)

    def _tell_others(self) -> None:
        """How many connections there are; but while the model loads nobody is to leave any to this process, whose
        clients are refused at once and so are always few.
        """
        if self.balance is None:
            return
        if self.succession.serves:
            self.balance.tell(len(self.traffic.open))
        else:
            self.balance.withdraw()

    def _accept_one(self, listener: Any) -> None:
        if self._is_full():
            return
        if self.balance is None or self.balance.takes(len(self.traffic.open)):
            self._accept(listener)
        else:
            self._is_away = True
            self._set_watching(False)  # what is left waiting would wake this process again and again
            self.balance.leave(time.monotonic())
        self._tell_others()

    def _look_again(self, now: float) -> None:
        """Watch the sockets again if it is time, and take a connection that nobody else has taken until then."""
        own = len(self.traffic.open)
        if self.balance is None or not self.balance.is_to_return(own, now):
            return
        self._is_away = False
        self._set_watching(True)
        for listener in self.sockets:
            if self._accept(listener):
                break
        self.balance.returned(own)
        self._tell_others()

    def _accept(self, listener: Any) -> bool:
        """Take a connection; whether there was one."""
        try:
            client, address = listener.accept()
        except OSError:
            return False  # nobody there, or gone again
        client.setblocking(False)
        conn = self._environs.connection(client, address, listener.getsockname())
        self.traffic.open.add(conn)
        self._reception.welcome(conn)
        return True

    def _hand_over(self, conn: Connection) -> None:
        """Give a request to the threads that it is for. *Thread:* the connection's owner."""
        self.traffic.enter(conn)
        conn.state = State.SERVED
        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            self.log.info("this process has served its %d requests, and ends", self.nr)
            self.alive = False
            self.traffic.stops = True
        self._crews[conn.place.way].put(conn)

    def _refuse(self, conn: Connection, status: int) -> None:
        """Answer a request that gets no thread. *Thread:* the connection's owner."""
        self._refuser.answer(conn, status)
        self._departures.linger(conn)

    def _fail(self, conn: Connection, error: Exception) -> None:
        """Answer a request that something here has failed on. *Thread:* the connection's owner."""
        self._refuser.answer_error(conn, error)
        self._departures.linger(conn)

    # The end.

    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """SIGTERM: the service stops, or, where somebody goes on to listen, another process takes over.

        Whoever stops all processes at once may reach this one first; the master's own signal then follows.
        """
        may_be = not self._hurry and (self.alive or self.traffic.is_relieved)
        self.traffic.is_relieved = may_be and (self.succession.shares_listeners or self._is_master_listening())
        self.traffic.stops = True
        self.alive = False

    def _stop(self) -> None:
        """Serve what is open until it has ended, or its time is up."""
        if self._is_accepting:
            self._set_accepting(False)
        began = self._stop_at = time.monotonic()
        self._refuse_newcomers()
        self._look_at = 0.0
        while self.traffic.open and (now := time.monotonic()) <= began + self.cfg.graceful_timeout:
            self._turn(now)
        for listener in self.sockets:
            listener.close()

    def _refuse_newcomers(self) -> None:
        """Take the connections that wait, so that each gets an answer, and close the listening sockets.

        Whoever connects later is refused at once. Does nothing when the master still holds the sockets, as it does
        when it replaces a worker: then another one will accept from them.
        """
        if self._is_master_listening():
            return
        for listener in self.sockets:
            if not self.succession.shares_listeners:  # what is dropped would be dropped for all
                let_nobody_else_in(listener)
            listener.setblocking(False)
            while self._accept(listener):
                pass
            listener.close()

    def _is_master_listening(self) -> bool:
        return any(is_held_by(os.getppid(), listener) for listener in self.sockets)

    def _hasten(self, stopping_for_s: float) -> None:
        """End what a stopping server need not wait for."""
        if self._hurry or stopping_for_s >= (RELIEVED_IDLE_S if self.traffic.is_relieved else STOP_IDLE_S):
            self._reception.let_go(State.IDLE)
        if self._hurry or stopping_for_s >= STOP_UNFINISHED_S:
            self._reception.let_go(State.HALF)
            for conn in list(self.traffic.owing):
                conn.shut(socket.SHUT_RD)  # its thread gets the end of the stream
