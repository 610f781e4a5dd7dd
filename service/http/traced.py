"""Recording each request as a span: hooks of their own, which an app without tracing does not have."""

from __future__ import annotations

from contextvars import Token
from typing import NamedTuple

from flask import Flask, Request, Response
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from service.http.state import RequestState, current_request, state_in
from service.probe_paths import BACKGROUND_PATHS
from service.route_label import route_label
from service.tracing.batch_span import model_attributes
from service.tracing.request_span import begin_request, caller_context, end_request, fail_request, record_phases
from service.tracing.tracing import Tracing

_KEY = "jitney.span"


class _Open(NamedTuple):
    """The span of the request that this thread is in. `token`: gives back what the thread was in before."""

    span: Span
    token: Token[Context]


class TracedRequests:
    """Each request of an app is a span of kind SERVER, and the current one while it is served; probes are none.

    Where a span is current already, of somebody who traces this app or its server, that one stands for the request.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def register(self, app: Flask) -> None:
        """Run around each request of `app`; called before all others, these hooks see what the others make of it."""
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)

    def _before(self) -> None:
        self._tracing.start()  # the first request, under a server that has no hook for its start
        tracer, now = self._tracing.requests, current_request()
        route = None if now.url_rule is None else route_label(now.url_rule.rule)
        if tracer is None or route in BACKGROUND_PATHS or trace.get_current_span().get_span_context().is_valid:
            return
        parent = caller_context(now.environ)
        span = begin_request(tracer, now.environ, route, parent)
        now.environ[_KEY] = _Open(span, context.attach(trace.set_span_in_context(span, parent)))

    def _after(self, response: Response) -> Response:
        now = current_request()
        state, span = state_in(now.environ), self._leave(now)
        if span is None:
            self._record_phases(trace.get_current_span(), state)
        else:
            self._record_phases(span, state)
            end_request(span, response.status_code, _attributes(now, state))
        return response

    def _teardown(self, error: BaseException | None) -> None:
        """For what no answer came of, as where an app lets its errors through."""
        span = self._leave(current_request())
        if span is not None:
            fail_request(span, error)

    def _leave(self, now: Request) -> Span | None:
        """Take the request's span from this thread; None where it has none, or none any more."""
        opened: _Open | None = now.environ.pop(_KEY, None)
        if opened is None:
            return None
        context.detach(opened.token)
        return opened.span

    def _record_phases(self, span: Span, state: RequestState) -> None:
        tracer = self._tracing.requests
        if tracer is not None and state.course is not None and span.is_recording():
            record_phases(tracer, span, state.course)


def _attributes(now: Request, state: RequestState) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"jitney.request_id": state.request_id(now.environ)}
    if state.model is not None:
        attributes |= model_attributes(state.model)
    if state.problem is not None:
        attributes["jitney.problem"] = state.problem
    return attributes
