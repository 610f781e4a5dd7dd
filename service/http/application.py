"""The Flask app that is Jitney's alone, without what a service of this kind never uses."""

from __future__ import annotations

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
    """Flask with two of its extension points used to save time on every request.

    Sessions are off. Paths are matched without looking at the host, since no rule depends on it.
    """

    session_interface = _NoSession()

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """The adapter for a request, from its environ."""
        if request is None or self.config["TRUSTED_HOSTS"] or self.config["SERVER_NAME"]:
            return super().create_url_adapter(request)
        environ: dict[str, Any] = request.environ
        return self.url_map.bind(
            environ.get("SERVER_NAME", "localhost"),
            environ.get("SCRIPT_NAME", ""),
            url_scheme=environ["wsgi.url_scheme"],
            default_method=environ["REQUEST_METHOD"],
            path_info=request.path,
            query_args=environ.get("QUERY_STRING", ""),
        )
