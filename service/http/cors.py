"""Pages of other origins: what a browser lets them send to, and read from, Jitney's own routes (CORS)."""

from __future__ import annotations

from flask import Request, Response, current_app

from service.settings import Settings

# Headers of answers that a page may read, and of requests that it may set, beside those that need no leave.
EXPOSED = "X-Request-ID, X-Model-Version, Server-Timing, Retry-After, Inference-Header-Content-Length"
ALLOWED = "Authorization, Content-Encoding, Content-Type, Inference-Header-Content-Length, X-API-Key, X-Request-ID"

# How long a browser may remember the answer to a preflight; Chromium remembers none for longer. Seconds.
MAX_AGE_S = 7200


class Cors:
    """Answers preflights and adds the headers that let pages of the allowed origins read answers, errors included.

    No cookies: a key goes into a header, which a foreign page can set only when it knows the key.
    """

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(settings.cors_origins or ())

    def preflight(self, request: Request) -> Response | None:
        """The answer to a browser that asks before it sends; None for any other request."""
        asks = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if not asks or self._allowed(request) is None:
            return None
        response = Response(status=204)
        response.headers["Access-Control-Allow-Methods"] = _methods()
        response.headers["Access-Control-Allow-Headers"] = ALLOWED
        response.headers["Access-Control-Max-Age"] = str(MAX_AGE_S)
        return response

    def add_headers(self, request: Request, response: Response) -> None:
        """Let a page of an allowed origin read this answer."""
        if "*" not in self._origins:
            response.vary.add("Origin")
        allowed = self._allowed(request)
        if allowed is not None:
            response.headers["Access-Control-Allow-Origin"] = allowed
            if request.method != "OPTIONS":
                response.headers["Access-Control-Expose-Headers"] = EXPOSED

    def _allowed(self, request: Request) -> str | None:
        """What the answer says is allowed; None for requests of no origin, or of one that is not."""
        origin = request.headers.get("Origin")
        if origin is None:
            return None
        if "*" in self._origins:
            return "*"
        return origin if origin in self._origins else None


def _methods() -> str:
    """The methods of every rule at this path, in one order."""
    return ", ".join(sorted(current_app.make_default_options_response().allow))
