"""What every answer carries: a request id, the model's version, and how long it took."""

from __future__ import annotations

import itertools
import re
import secrets
import time

from flask import Flask, Response, g, request

from service.runtime import Runtime

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class AnswerHeaders:
    """Adds the headers to the answers of Jitney's own routes, or of every route when the whole app is Jitney's."""

    def __init__(self, runtime: Runtime, *, whole_app: bool) -> None:
        self._runtime = runtime
        self._whole_app = whole_app
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def register(self, app: Flask) -> None:
        """Run before and after each request of `app`."""
        app.before_request(self._before)
        app.after_request(self._after)

    def _before(self) -> None:
        g.answer_started_at = time.perf_counter()
        asked = request.headers.get("X-Request-ID", "")
        g.request_id = asked if _REQUEST_ID.fullmatch(asked) else f"{self._prefix}-{next(self._numbers):x}"

    def _after(self, response: Response) -> Response:
        if not self._whole_app and request.blueprint != "jitney":
            return response
        headers = response.headers
        headers["X-Request-ID"] = g.request_id
        model = self._runtime.model
        if model is not None:
            headers["X-Model-Version"] = model.version
        total_ms = (time.perf_counter() - g.answer_started_at) * 1000
        detail = g.get("server_timing")
        headers["Server-Timing"] = (
            f"total;dur={total_ms:.3f}" if detail is None else f"{detail}, total;dur={total_ms:.3f}"
        )
        if response.status_code == 503 and self._runtime.draining:
            headers["Connection"] = "close"
        return response
