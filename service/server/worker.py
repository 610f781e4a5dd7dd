"""gunicorn's threaded worker, with a main loop that no client can hold up, and a clean and bounded end.

What it changes, and why:

* A connection is handed to a thread when the head of its request is there. `ThreadWorker` lets a thread wait for it.
* When all threads are taken, only so many requests wait for one; those beyond are refused at once by threads that do
  nothing else, and probes are answered by threads kept for them. With `ThreadWorker` all of them wait, unseen.
* A client that takes too long to send its request or to read its answer, or that is silent and leaves no room for new
  connections, is cut off.
* A connection that ends is lingered on by the poller. `ThreadWorker` does that in its main loop, two seconds for each
  client that does not close its side, while nobody else is served.
* When the server stops, idle connections are closed at once, unfinished requests after a second, and connections that
  the kernel has completed are answered. gunicorn's master closes its listening sockets at SIGTERM, but each worker
  keeps its copy open without accepting from it, and the kernel resets what waits there when the worker ends: a client
  cannot tell that from a request that was lost half way.
* While it loads, new connections are left to the processes that serve already, see `service.server.succession`; and
  when it is told to stop because another one serves, requests that still come on its connections are answered.
* What is no HTTP request is answered in the same form as every other error.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.http.errors import ConfigurationProblem, UnsupportedTransferCoding
from gunicorn.workers.gthread import ThreadWorker

from service.logs import log_request
from service.methods import method_label
from service.server.closing_listeners import is_held_by, let_nobody_else_in
from service.server.connection import Connection
from service.server.overload import Overload, Place, Way
from service.server.refusal import Captured, Muted, refusal, status_of
from service.server.request_head import head_of, is_whole
from service.server.succession import Succession
from service.server.unread_body import WORTH_READING_BYTES, bytes_at_hand, rest_of_body
from service.settings import SPARE_THREADS, SettingsError
from service.wsgi_environ import ACCEPTED, AHEAD, ARRIVED_AT

# How long a connection that was answered for the last time is read on, so that the answer is not lost to a reset.
LINGER_S = 2.0

# What a stopping server still gives kept connections, and requests whose last bytes have not come.
STOP_IDLE_S = 0.3
# The first of these where another process has taken over: nobody waits for the end, and each client that sends another
# request meanwhile is told to close, and loses none. *Source:* gunicorn's own STOP_KEEPALIVE_LINGER.
RELIEVED_IDLE_S = 2.0
STOP_UNFINISHED_S = 1.0

# What a spare thread does takes milliseconds; a client that holds one for longer does not send or does not read.
SPARE_S = 5.0

# How long a client may take to send a request, or read nothing of its answer, where no app has said it, and how often
# the first is looked at.
PATIENCE_S = 30.0
LOOK_S = 0.5

# A connection that has been silent for so long makes room for a new one when there are too many.
SILENT_S = 1.0


class Worker(ThreadWorker):  # type: ignore[misc]
    """*Thread:* everything but `handle` and what it calls runs on the main thread."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._busy: dict[Connection, bool] = {}  # connections with a thread -> to be served although it may be stopping
        self._main: set[Connection] = set()  # those of them that the main threads are not done with
        self._half: dict[Connection, float] = {}  # heads that are not whole -> when they are given up, in this order
        self._overload: Overload | None = None
        self._count_unseen: Sequence[Callable[[str, int, float], None]] = ()
        self._look_at = 0.0
        self._lingering: deque[tuple[float, Connection]] = deque()
        self._on_thread = threading.local()
        self._app: Callable[..., Iterable[bytes]]
        self.wsgi: Callable[..., Iterable[bytes]]
        self.succession: Succession  # set by the master before the fork
        # Called first on each thread of the pools; who knows where threads run replaces it before the first request.
        self.on_http_thread: Callable[[], None] = lambda: None
        self._stop_at: float | None = None
        self._hurry = False
        self._is_relieved = False  # told to stop, and the master goes on to listen

    def leave_soon(self) -> None:
        """Stop without waiting for clients; for a process that cannot answer anything any more. *Thread:* any."""
        self._hurry = True
        os.kill(os.getpid(), 15)

    def limit_waiting(self, overload: Overload) -> None:
        """Refuse what is beyond a limit, from now on; the app must refuse, or answer, all that has `AHEAD`."""
        self._overload = overload

    @property
    def is_relieved(self) -> bool:
        """Whether this process stops, and the service does not: what still comes here is answered as ever."""
        return self._is_relieved

    def count_unseen_with(self, counters: Sequence[Callable[[str, int, float], None]]) -> None:
        """Tell these from now on the method, status and seconds of what is answered here and not by the app."""
        self._count_unseen = counters

    @property
    def _patience_s(self) -> float:
        """How long a client may take to send a request, or read nothing of its answer."""
        return PATIENCE_S if self._overload is None else self._overload.patience_s

    @property
    def waiting(self) -> int:
        """How many requests wait for a thread. *Thread:* any."""
        return 0 if self._overload is None else self._overload.waiting(len(self._main))

    def get_thread_pool(self) -> ThreadPoolExecutor:
        """The threads that predict; beside them are made those that do not."""
        cfg, few = self.cfg, SPARE_THREADS // 2
        # Whether what a client has sent is the request itself, to be seen without taking it.
        is_plain = cfg.proxy_protocol in (False, "off") and getattr(cfg, "protocol", "http") == "http"
        self._looks_ahead = is_plain and not cfg.is_ssl and "h2" not in cfg.http_protocols
        self._pools = {
            Way.MAIN: ThreadPoolExecutor(cfg.threads, "http", self._on_thread_start),
            Way.PROBE: ThreadPoolExecutor(few, "http-probe", self._on_thread_start),
            Way.SURPLUS: ThreadPoolExecutor(few, "http-surplus", self._on_thread_start),
        }
        return self._pools[Way.MAIN]

    def _on_thread_start(self) -> None:
        self.on_http_thread()

    def run(self) -> None:
        """The main loop; `ThreadWorker` ends its own pool after it."""
        super().run()
        for pool in self._pools.values():
            pool.shutdown(wait=False)

    # Connections.

    def accept(self, listener: Any) -> None:
        """Take a connection and wait for its first bytes in the poller."""
        try:
            client, address = listener.accept()
        except OSError:
            return  # nobody there, or gone again
        self.nr_conns += 1
        conn = Connection(self.cfg, client, address, listener.getsockname())
        conn.set_timeout()
        conn.give_up_sending_after(self._patience_s)
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def enqueue_req(self, conn: Connection) -> None:
        """Hand a connection to a thread, as soon as the head of its next request is there."""
        if not self._looks_ahead:
            self._hand_over(conn, None)
            return
        arrived = conn.arrived()
        if arrived is None:
            self._half.pop(conn, None)
            self._close(conn)  # there is no request, and nobody to answer
        elif is_whole(arrived) or len(arrived) == conn.seen_bytes:  # or all that will ever come
            if self._half.pop(conn, None) is not None:
                conn.wake_as_usual()
            self._hand_over(conn, arrived)
        else:
            self._half.setdefault(conn, time.monotonic() + self._patience_s)
            conn.wake_beyond(arrived)
            conn.sock.setblocking(False)
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_more_of_head, conn))

    def _on_more_of_head(self, conn: Connection, _sock: Any) -> None:
        self.poller.unregister(conn.sock)
        self.enqueue_req(conn)

    def _hand_over(self, conn: Connection, head: bytes | None) -> None:
        """Give a request to the threads that it is for. head: None where it cannot be seen."""
        conn.forget_request()
        conn.arrived_at = time.monotonic()
        conn.head = head
        conn.place = Place(Way.MAIN)
        if self._overload is not None:
            conn.place = self._overload.place(len(self._main), head, is_stopping=not (self.alive or self._is_relieved))
        self._busy[conn] = self.alive or self._is_relieved
        if conn.place.way is Way.MAIN:
            self._main.add(conn)
        future = self._pools[conn.place.way].submit(self.handle, conn)
        future.add_done_callback(lambda done: self.method_queue.defer(self.finish_request, conn, done))

    def finish_request(self, conn: Connection, future: Any) -> None:
        """A thread is done with a connection: keep it, or let it end."""
        self._busy.pop(conn, None)
        if not future.cancelled() and future.exception() is None and future.result():
            super().finish_request(conn, future)
        else:
            self._linger(conn)

    def murder_keepalived(self, force: bool = False) -> None:
        """Called by the main loop at least once a second, and at its end with `force`."""
        super().murder_keepalived(force)
        now = time.monotonic()
        while self._lingering and (force or self._lingering[0][0] <= now):
            _, conn = self._lingering.popleft()
            self._end(conn)
        while self._half and force:
            self._give_up_head()
        while self._half and next(iter(self._half.values())) <= now:
            self._time_out_head()
        if self._stop_at is not None:
            self._hasten(now - self._stop_at)
        elif self.nr_conns >= self.worker_connections:
            self._make_room(now)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._cut_slow(now)

    def _give_up_head(self) -> None:
        """End the connection that has waited longest for the rest of a head."""
        conn = next(iter(self._half))
        del self._half[conn]
        self._end(conn)

    def _time_out_head(self) -> None:
        """Tell the client that has waited longest with the rest of a head, and end its connection."""
        conn, late_at = next(iter(self._half.items()))
        del self._half[conn]
        with suppress(OSError, ValueError, KeyError):  # it may be closed already
            self.poller.unregister(conn.sock)
        conn.wake_as_usual()
        conn.arrived_at = late_at - self._patience_s
        answer = self._refusal(conn, 408, conn.arrived() or b"", conn.client)
        with suppress(OSError):  # the client is gone, or does not read: nobody waits for it here
            conn.sock.send(answer)
        self._linger(conn)

    def _make_room(self, now: float) -> None:
        """Let the connection go that has been silent for longest: a newcomer may be a probe, and would wait unseen."""
        for silent in (self.pending_conns, self.keepalived_conns):
            if silent and silent[0].timeout - self.cfg.keepalive + SILENT_S <= now:
                silent[0].timeout = 0.0
                self.murder_pending()
                super().murder_keepalived()
                return
        if self._half and next(iter(self._half.values())) - self._patience_s + SILENT_S <= now:
            self._give_up_head()

    def _cut_slow(self, now: float) -> None:
        """End what holds a thread because its client does not send, or, on a spare thread, does not read."""
        for conn in list(self._busy):
            since = conn.served_since
            if since is None:
                continue
            if conn.place.way is not Way.MAIN and now - since > SPARE_S:
                if conn.body is None or conn.answered_at is not None:
                    conn.shut(socket.SHUT_RDWR)
            elif now - since > self._patience_s and conn.is_unfinished:
                conn.shut(socket.SHUT_RD)  # its thread gets the end of the stream

    def _linger(self, conn: Connection) -> None:
        """Say that nothing more will be sent, and read on until the client has closed its side too."""
        try:
            conn.sock.shutdown(socket.SHUT_WR)
            conn.sock.setblocking(False)
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._drain, conn))
        except (OSError, ValueError, KeyError):
            self._close(conn)  # it is closed already
            return
        self._lingering.append((time.monotonic() + LINGER_S, conn))

    def _drain(self, conn: Connection, _sock: Any) -> None:
        try:
            data = conn.sock.recv(256 * 1024)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        conn.left_bytes -= len(data)
        if not data or conn.left_bytes <= 0:
            self._lingering = deque(entry for entry in self._lingering if entry[1] is not conn)
            self._end(conn)

    def _end(self, conn: Connection) -> None:
        with suppress(OSError, ValueError, KeyError):  # it may be closed already
            self.poller.unregister(conn.sock)
        self._close(conn)

    def _close(self, conn: Connection) -> None:
        self.nr_conns -= 1
        conn.close()

    # Requests.

    def init_process(self) -> None:
        """All of a process's life. Settings that only it could judge end it with a message as the master's own do."""
        try:
            super().init_process()
        except SettingsError as error:
            self.log.critical("wrong settings: %s", error)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    def load_wsgi(self) -> None:
        """Load the app, and put around it what only the worker knows of a request."""
        super().load_wsgi()
        self._app = self.wsgi
        self.wsgi = self._call_app

    def handle(self, conn: Connection) -> Any:
        """Serve one request on a connection. *Thread:* of a pool."""
        conn.served_since = time.monotonic()
        self._on_thread.conn = conn
        try:
            return super().handle(conn)
        finally:
            conn.head = None
            self._main.discard(conn)

    def _call_app(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        conn = self._on_thread.conn
        conn.body = body = environ["wsgi.input"]
        environ[ACCEPTED] = self._busy.get(conn, False)
        if not conn.is_http2:  # where a connection carries many requests
            environ[ARRIVED_AT] = conn.arrived_at
        is_spare = conn.place.way is not Way.MAIN
        if is_spare:
            environ[AHEAD] = conn.place.ahead

        def start(status: str, headers: Any, exc_info: Any = None) -> Any:
            conn.answered_at = time.monotonic()
            rest_bytes = rest_of_body(body)
            # A spare thread does not wait for the rest of a body that nobody is going to read.
            if rest_bytes > (bytes_at_hand(conn) if is_spare else WORTH_READING_BYTES):
                start_response.__self__.force_close()
            return start_response(status, headers, exc_info)

        return self._app(environ, start)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what is no HTTP request, or a failure outside the app. *Thread:* of the pool."""
        conn: Connection = self._on_thread.conn
        status = 404  # a path outside the prefix of SCRIPT_NAME
        if not isinstance(exc, ConfigurationProblem):
            page = Captured()
            muted = SimpleNamespace(log=Muted(self.log.access), cfg=self.cfg)
            ThreadWorker.handle_error(muted, req, page, addr, exc)
            status = status_of(page.written)
        if status >= 500 and not isinstance(exc, ConfigurationProblem | UnsupportedTransferCoding):
            self.log.error("a request failed outside the app", exc_info=exc)
        answer = self._refusal(conn, status, conn.head or b"", addr, type(exc).__name__)
        try:
            client.sendall(answer)
        except OSError:
            self.log.debug("the client was gone before its error could be sent")

    def _refusal(self, conn: Connection, status: int, arrived: bytes, addr: Any, cause: str = "") -> bytes:
        """The answer to what is no request, of which `arrived` has been seen; logged before anybody can ask for it.

        cause: what the log says beside the status; nothing that the client has sent.
        """
        head = head_of(arrived)
        answer = refusal(status, head, os.environ.get("SCRIPT_NAME", ""))
        method, took_s = method_label(head.method), time.monotonic() - conn.arrived_at
        for count in self._count_unseen:
            count(method, status, took_s)
        log_request(
            method=method,
            route="unmatched",
            status=status,
            duration_ms=took_s * 1000,
            request_id=answer.request_id,
            client=addr[0] if isinstance(addr, tuple) else None,
            problem=f"{answer.title} ({cause})" if cause else answer.title,
        )
        return answer.data

    # The end.

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """SIGQUIT, which the master also sends after SIGINT: leave at once.

        The handler of `ThreadWorker` takes a lock of the thread pool first. When the signal interrupts the main loop
        while that hands a request to the pool, the loop holds this lock, and the worker hangs until it is killed.
        """
        super(ThreadWorker, self).handle_quit(sig, frame)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM: the service stops, or, where somebody goes on to listen, another process takes over.

        Whoever stops all processes at once may reach this one first; the master's own signal then follows.
        """
        may_be = not self._hurry and (self.alive or self._is_relieved)
        self._is_relieved = may_be and (self.succession.shares_listeners or self._is_master_listening())
        super().handle_exit(sig, frame)

    def accept_now(self) -> None:
        """New connections are for this process from now on. *Thread:* any."""
        self.method_queue.defer(lambda: self.set_accept_enabled(self.alive and self.nr_conns < self.worker_connections))

    def set_accept_enabled(self, enabled: bool) -> None:
        """Called by the main loop, also once when it has ended and only open requests are still served."""
        super().set_accept_enabled(enabled and self.succession.may_accept)
        if not enabled and not self.alive and self._stop_at is None:
            self._stop_at = time.monotonic()
            self._refuse_newcomers()

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Called by the main loop; a stopping server looks more often at what has run out of time."""
        super().wait_for_and_dispatch_events(timeout if self._stop_at is None else min(timeout, 0.1))

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
            accepted = -1
            while self.nr_conns > accepted:  # accept() does not say whether there was one
                accepted = self.nr_conns
                self.accept(listener)
            listener.close()

    def _is_master_listening(self) -> bool:
        return any(is_held_by(os.getppid(), listener) for listener in self.sockets)

    def _hasten(self, stopping_for_s: float) -> None:
        """End what a stopping server need not wait for."""
        if self._hurry or stopping_for_s >= (RELIEVED_IDLE_S if self._is_relieved else STOP_IDLE_S):
            for conn in (*self.keepalived_conns, *self.pending_conns):
                conn.timeout = 0.0
            super().murder_keepalived()
            self.murder_pending()
        if self._hurry or stopping_for_s >= STOP_UNFINISHED_S:
            while self._half:
                self._give_up_head()
            for conn in list(self._busy):
                if self._has_been_slow(conn):
                    conn.shut(socket.SHUT_RD)  # its thread gets the end of the stream

    def _has_been_slow(self, conn: Connection) -> bool:
        """Whether a thread has waited long enough, when the server stops, for the rest of a request."""
        since = conn.served_since
        if since is None or (not self._hurry and time.monotonic() - since < STOP_UNFINISHED_S):
            return False
        return conn.is_unfinished
