"""The Flask app that is Jitney's alone, without what a service of this kind never uses."""

from __future__ import annotations

from collections.abc import Callable
from inspect import CO_COROUTINE
from types import CodeType
from typing import Any

from flask import Flask, Request, Response
from flask.sessions import NullSession, SessionInterface, SessionMixin
from werkzeug.routing import MapAdapter


class _NoSession(SessionInterface):
    """No cookie is read or written."""

    _session = NullSession()

    def open_session(self, app: Flask, request: Request) -> SessionMixin:  # noqa: ARG002
        return self._session

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        """There is nothing to save."""


class JitneyFlask(Flask):
    """Flask with three of its extension points used to save time on every request.

    Sessions are off. Paths are matched without looking at the host, since no rule depends on it. A function that is
    plainly no coroutine is not looked at any closer.
    """

    session_interface = _NoSession()

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """The adapter for a request, from its environ."""
        if request is None or self.config["TRUSTED_HOSTS"] or self.config["SERVER_NAME"]:
            return super().create_url_adapter(request)
        environ: dict[str, Any] = request.environ
        # What `Map.bind` makes, without the encoding of a host name that nothing here looks at.
        return MapAdapter(
            self.url_map,
            server_name=environ.get("SERVER_NAME", "localhost"),
            script_name=environ.get("SCRIPT_NAME", ""),
            subdomain=self.url_map.default_subdomain,
            url_scheme=environ["wsgi.url_scheme"],
            path_info=request.path,
            default_method=environ["REQUEST_METHOD"],
            query_args=environ.get("QUERY_STRING", ""),
        )

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """`func`, or for a coroutine what runs it to its end."""
        # A plain function says so at once; one with attributes may be marked as something else.
        code: CodeType | None = getattr(func, "__code__", None)
        if code is not None and not code.co_flags & CO_COROUTINE and not func.__dict__:
            return func
        return super().ensure_sync(func)
