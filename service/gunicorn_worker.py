"""gunicorn's threaded worker, with a main loop that no client can hold up, and a clean and bounded end.

What it changes, and why:

* A new connection is handed to a thread when its first bytes are there. `ThreadWorker` lets a thread wait for them.
* A connection that ends is lingered on by the poller. `ThreadWorker` does that in its main loop, two seconds for each
  client that does not close its side, while nobody else is served.
* When the server stops, idle connections are closed at once, unfinished requests after a second, and connections that
  the kernel has completed are answered. gunicorn's master closes its listening sockets at SIGTERM, but each worker
  keeps its copy open without accepting from it, and the kernel resets what waits there when the worker ends: a client
  cannot tell that from a request that was lost half way.
* What is no HTTP request is answered in the same form as every other error.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from service.closing_listeners import is_held_by, let_nobody_else_in
from service.gunicorn_problem import Captured, as_problem
from service.unread_body import WORTH_READING_BYTES, rest_of_body
from service.wsgi_environ import ACCEPTED

# How long a connection that was answered for the last time is read on, so that the answer is not lost to a reset.
LINGER_S = 2.0
LINGER_BYTES = 64 * 1024 * 1024

# What a stopping server still gives kept connections, and requests whose last bytes have not come.
STOP_IDLE_S = 0.3
STOP_UNFINISHED_S = 1.0


class Connection(TConn):  # type: ignore[misc]
    """A client's connection.

    `served_since`: when a thread took it up, None as long as it waits for one. `body`: of the request that is being
    served, None as long as its head has not been read. Both are written by the thread that serves it. `left_bytes`: how
    much is still read from it after its last answer.
    """

    served_since: float | None = None
    body: Any = None
    left_bytes: int = LINGER_BYTES


class Worker(ThreadWorker):  # type: ignore[misc]
    """*Thread:* everything but `handle` and what it calls runs on the main thread."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._busy: dict[Connection, bool] = {}  # connections with a thread -> handed over before the stop
        self._lingering: deque[tuple[float, Connection]] = deque()
        self._on_thread = threading.local()
        self._app: Callable[..., Iterable[bytes]]
        self.wsgi: Callable[..., Iterable[bytes]]
        self._stop_at: float | None = None
        self._hurry = False

    def leave_soon(self) -> None:
        """Stop without waiting for clients; for a process that cannot answer anything any more. *Thread:* any."""
        self._hurry = True
        os.kill(os.getpid(), 15)

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
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def enqueue_req(self, conn: Connection) -> None:
        """Hand a connection to a thread."""
        conn.served_since = conn.body = None
        self._busy[conn] = self.alive
        super().enqueue_req(conn)

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
        if self._stop_at is not None:
            self._hasten(now - self._stop_at)

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

    def load_wsgi(self) -> None:
        """Load the app, and put around it what only the worker knows of a request."""
        super().load_wsgi()
        self._app = self.wsgi
        self.wsgi = self._call_app

    def handle(self, conn: Connection) -> Any:
        """Serve one request on a connection. *Thread:* of the pool."""
        conn.served_since = time.monotonic()
        self._on_thread.conn = conn
        return super().handle(conn)

    def _call_app(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        conn = self._on_thread.conn
        conn.body = body = environ["wsgi.input"]
        environ[ACCEPTED] = self._busy.get(conn, False)

        def start(status: str, headers: Any, exc_info: Any = None) -> Any:
            if rest_of_body(body) > WORTH_READING_BYTES:
                start_response.__self__.force_close()
            return start_response(status, headers, exc_info)

        return self._app(environ, start)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what is no HTTP request, or a failure outside the app. *Thread:* of the pool."""
        answer = Captured()
        super().handle_error(req, answer, addr, exc)
        try:
            client.sendall(as_problem(answer.written))
        except OSError:
            self.log.debug("the client was gone before its error could be sent")

    # The end.

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """SIGQUIT, which the master also sends after SIGINT: leave at once.

        The handler of `ThreadWorker` takes a lock of the thread pool first. When the signal interrupts the main loop
        while that hands a request to the pool, the loop holds this lock, and the worker hangs until it is killed.
        """
        super(ThreadWorker, self).handle_quit(sig, frame)

    def set_accept_enabled(self, enabled: bool) -> None:
        """Called by the main loop, also once when it has ended and only open requests are still served."""
        super().set_accept_enabled(enabled)
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
        if any(is_held_by(os.getppid(), listener) for listener in self.sockets):
            return
        for listener in self.sockets:
            let_nobody_else_in(listener)
            listener.setblocking(False)
            accepted = -1
            while self.nr_conns > accepted:  # accept() does not say whether there was one
                accepted = self.nr_conns
                self.accept(listener)
            listener.close()

    def _hasten(self, stopping_for_s: float) -> None:
        """End what a stopping server need not wait for."""
        if self._hurry or stopping_for_s >= STOP_IDLE_S:
            for conn in (*self.keepalived_conns, *self.pending_conns):
                conn.timeout = 0.0
            super().murder_keepalived()
            self.murder_pending()
        if self._hurry or stopping_for_s >= STOP_UNFINISHED_S:
            for conn in list(self._busy):
                if self._is_unfinished(conn):
                    with suppress(OSError):  # the client may have been faster
                        conn.sock.shutdown(socket.SHUT_RD)  # its thread gets the end of the stream

    def _is_unfinished(self, conn: Connection) -> bool:
        """Whether a thread waits, and has waited long enough, for the rest of a request."""
        since = conn.served_since
        if since is None or (not self._hurry and time.monotonic() - since < STOP_UNFINISHED_S):
            return False
        return conn.body is None or rest_of_body(conn.body) > 0
