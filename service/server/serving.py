"""One request on one thread: the app is called, its answer sent, and the connection passed on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from io import BytesIO
from types import SimpleNamespace
from typing import Any

from gunicorn.http.errors import NoMoreData

from service.server.answer import ClientGone
from service.server.connection import Connection
from service.server.departures import Departures
from service.server.outbox import Outbox
from service.server.overload import Way
from service.server.reception import Reception
from service.server.refuser import Refuser
from service.server.slow_path import SlowRequest, Source
from service.server.traffic import Traffic
from service.wsgi_environ import ACCEPTED, AHEAD, ANNOUNCED, ARRIVED_AT

# What a spare thread does takes milliseconds; a client that holds one for longer does not send or does not read.
SPARE_S = 5.0

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Serving:
    """Serves requests that were handed over. shares_core: see `Outbox`.

    *Thread:* any HTTP thread; it owns the connection until it passes it on.
    """

    def __init__(
        self,
        app: App,
        cfg: Any,
        log: Any,
        traffic: Traffic,
        reception: Reception,
        departures: Departures,
        refuser: Refuser,
        shares_core: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._cfg = cfg
        self._log = log
        self._logs_access = log.access_log_enabled
        self._traffic = traffic
        self._reception = reception
        self._departures = departures
        self._refuser = refuser
        self._outbox = Outbox(shares_core, self._pass_on)

    def serve(self, conn: Connection) -> None:
        """Answer the request of `conn`, and leave it to whoever is next. Raises nothing."""
        answer, is_gone, rest = conn.answer, False, b""
        try:
            is_main = conn.place.way is Way.MAIN
            answer.patience_s = self._traffic.patience_s if is_main else SPARE_S
            is_whole = conn.is_plain and len(conn.arrived) >= conn.needed_bytes  # type: ignore[operator]  # it has one
            # Of a request that is not whole the rest is read after the answer, for which its client may wait.
            answer.may_wait = is_whole and is_main and self._outbox.shares_core()
            rest = self._serve_plain(conn) if is_whole else self._serve_slowly(conn)
        except (ClientGone, NoMoreData):  # the second one is the app's, which has read on and does not mind
            is_gone = True
        except BaseException as error:  # SystemExit too: the thread is needed by others
            self._fail(conn, error)
        finally:
            self._traffic.leave(conn)
        conn.arrived = rest
        if answer.waits and not is_gone:
            self._outbox.put(conn, others_are_inside=bool(self._traffic.inside))
        else:
            self._pass_on(conn, is_gone)

    def _pass_on(self, conn: Connection, is_gone: bool) -> None:
        """Leave a connection, of whose answer all is sent that there was room for, to whoever is next."""
        answer = conn.answer
        try:
            if not is_gone and answer.unsent and not self._traffic.keep(conn, len(answer.unsent)):
                answer.wait_until_sent()  # as much is kept in memory as may be
        except ClientGone:
            is_gone = True
        if is_gone:
            self._departures.end(conn)
        elif answer.unsent:
            self._departures.leave_rest_to_poller(conn)
        else:
            self._reception.after_answer(conn)

    def _serve_plain(self, conn: Connection) -> bytes:
        """All of the request is here; returns what has come behind it."""
        environ, arrived, head_bytes, needed_bytes = conn.environ, conn.arrived, conn.head_bytes, conn.needed_bytes
        assert environ is not None
        assert needed_bytes is not None
        rest = bytes(arrived[needed_bytes:]) if len(arrived) > needed_bytes else b""
        with memoryview(arrived) as view:
            environ["wsgi.input"] = BytesIO(view[head_bytes:needed_bytes])
        conn.arrived = arrived[:head_bytes]
        del arrived  # a body may be large, and once in memory is enough
        must_close = environ.get("HTTP_CONNECTION", "").lower() == "close"
        conn.answer.begin(environ["REQUEST_METHOD"], 1, must_close=must_close)
        self._run(conn, environ)
        return rest

    def _serve_slowly(self, conn: Connection) -> bytes:
        """Have gunicorn's parser read the request, some of which may still have to come; returns what follows it."""
        answer, may_wait = conn.answer, conn.place.way is Way.MAIN
        answer.begin("GET", 1, must_close=True)
        deadline = conn.since + self._traffic.patience_s if may_wait else time.monotonic() + SPARE_S
        source = Source(conn.sock, bytes(conn.arrived), deadline)
        slow = SlowRequest(source, conn.sock, conn.client, conn.server, self._cfg)
        request = slow.request

        def on_start() -> None:
            answer.must_close = answer.must_close or slow.must_close(may_wait=may_wait)

        answer.begin(request.method, request.version[1], must_close=request.should_close(), on_start=on_start)
        slow.environ["wsgi.early_hints"] = answer.send_early_hints
        slow.environ[ANNOUNCED] = conn.base[ANNOUNCED]
        self._run(conn, slow.environ)
        rest = None if answer.must_close else slow.leave()
        if rest is None:
            answer.must_close = True
        return rest or b""

    def _run(self, conn: Connection, environ: dict[str, Any]) -> None:
        environ[ACCEPTED] = conn.is_accepted
        environ[ARRIVED_AT] = conn.whole_head_at
        if conn.place.way is not Way.MAIN:
            environ[AHEAD] = conn.place.ahead
        answer, began = conn.answer, time.monotonic() if self._logs_access else 0.0
        iterable = self._app(environ, answer.start_response)
        try:
            answer.send(iterable)
        finally:
            if self._logs_access:
                self._log_access(conn, environ, time.monotonic() - began)
            close = getattr(iterable, "close", None)
            if close is not None:
                close()

    def _log_access(self, conn: Connection, environ: dict[str, Any], took_s: float) -> None:
        """Write gunicorn's own access log, for who has asked for it."""
        headers = [
            (key.removeprefix("HTTP_").replace("_", "-"), value)
            for key, value in environ.items()
            if key.startswith("HTTP_") or key in ("CONTENT_TYPE", "CONTENT_LENGTH")
        ]
        request = SimpleNamespace(headers=headers)
        self._log.access(conn.answer, request, environ, timedelta(seconds=took_s))

    def _fail(self, conn: Connection, error: BaseException) -> None:
        """What was no request, or an app that raised."""
        if conn.answer.has_begun:
            # What is a part of an answer already would be spoilt by another one.
            self._log.error("a request failed after its answer had begun", exc_info=error)
            conn.answer.must_close = True
            if not conn.answer.waits:
                conn.answer.unsent = b""
        else:
            self._refuser.answer_error(conn, error)
