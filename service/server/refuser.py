"""Answering what never gets to the app, and telling the log and the metrics of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from gunicorn.http.errors import ConfigurationProblem, UnsupportedTransferCoding
from gunicorn.workers.base import Worker

from service.logs import log_request
from service.methods import method_label
from service.server.connection import Connection
from service.server.refusal import Captured, Muted, refusal, status_of
from service.server.request_head import head_of


class Refuser:
    """`counters`: are told the method, status and seconds of each refusal. *Thread:* the connection's owner."""

    def __init__(self, cfg: Any, log: Any) -> None:
        self._cfg = cfg
        self._log = log
        self.counters: Sequence[Callable[[str, int, float], None]] = ()

    def answer(self, conn: Connection, status: int, cause: str = "") -> None:
        """Refuse the request of `conn`, whose last answer this is; does not wait for the client.

        cause: what the log says beside the status; nothing that the client has sent.
        """
        head = head_of(bytes(conn.arrived))
        told = refusal(status, head, os.environ.get("SCRIPT_NAME", ""))
        method, took_s = method_label(head.method), time.monotonic() - (conn.whole_head_at or conn.since)
        for count in self.counters:
            count(method, status, took_s)
        # Logged before anybody can ask for it.
        log_request(
            method=method,
            route="unmatched",
            status=status,
            duration_ms=took_s * 1000,
            request_id=told.request_id,
            client=conn.client[0] if isinstance(conn.client, tuple) else None,
            problem=f"{told.title} ({cause})" if cause else told.title,
        )
        conn.answer.must_close = True
        try:
            conn.sock.send(told.data)
        except OSError:
            self._log.debug("the client was gone before its error could be sent")

    def answer_error(self, conn: Connection, error: BaseException) -> None:
        """Refuse what is no HTTP request, or tell of a failure outside the app."""
        status = 404  # a path outside the prefix of SCRIPT_NAME
        if not isinstance(error, ConfigurationProblem):
            page = Captured()
            muted = SimpleNamespace(log=Muted(self._log.access), cfg=self._cfg)
            Worker.handle_error(muted, None, page, conn.client, error)
            status = status_of(page.written)
        if status >= 500 and not isinstance(error, ConfigurationProblem | UnsupportedTransferCoding):
            self._log.error("a request failed outside the app", exc_info=error)
        self.answer(conn, status, type(error).__name__)
