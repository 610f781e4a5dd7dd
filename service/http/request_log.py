"""The line of the log about a request that has been answered."""

from __future__ import annotations

import time
from typing import Any

from service.http.state import RequestState
from service.logs import is_request_logged, log_request
from service.request_id import accepted_id


def log_answer(
    environ: dict[str, Any], state: RequestState, *, method: str, route: str, status: int, request_id: str | None
) -> None:
    """Log what is known of a request; nothing is looked up when that is logged nowhere.

    method, route: the labels that the request is counted under, of which no part is the caller's own. request_id: the
    answer's `X-Request-ID`; where it has none that can be logged, the request's own stands in its place, if any.
    """
    if not is_request_logged(route):
        return
    model, answer = state.model, state.answer
    batches = () if answer is None else answer.batches
    log_request(
        method=method,
        route=route,
        status=status,
        duration_ms=(time.perf_counter() - state.started_at) * 1000,
        request_id=accepted_id(request_id) or accepted_id(environ.get("HTTP_X_REQUEST_ID")),
        problem=state.problem,
        client=environ.get("REMOTE_ADDR") or None,
        rows=None if answer is None else len(answer.results),
        queue_ms=None if answer is None else answer.queue_s * 1000,
        model_ms=None if answer is None else answer.model_s * 1000,
        # A batch stands there once for each of its rows.
        batch_sizes=list({info.batch_id: info.size for info in batches}.values()),
        model=None if model is None else model.name,
        version=None if model is None else model.version,
    )
