"""Who may call what: keys in the headers of a request, judged before its body is read."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Any, TypeVar

from flask import Request, current_app
from pydantic import SecretStr

from service.errors import Forbidden, Unauthorized
from service.http.paths import BLUEPRINT
from service.settings import MAX_KEY_CHARS, Settings

# Methods that ask and change nothing; all others make the model, or the service, work.
_READING = frozenset({"GET", "HEAD", "OPTIONS"})

_MARK = "jitney_access"

View = TypeVar("View", bound=Callable[..., Any])


class Access(StrEnum):
    """What a route needs: nothing, or one of the keys of API_KEYS, METRICS_KEY or ADMIN_TOKEN."""

    OPEN = "open"
    INFERENCE = "inference"
    METRICS = "metrics"
    ADMIN = "admin"


def needs(access: Access) -> Callable[[View], View]:
    """Mark a view function with what its route needs, where that does not follow from its method."""

    def mark(view: View) -> View:
        setattr(view, _MARK, access)
        return view

    return mark


class KeyRing:
    """Keys of equal right.

    Kept as digests: those are of one length, so the time of a comparison tells nothing of a key.
    """

    def __init__(self, keys: Iterable[SecretStr]) -> None:
        self._digests = [_digest(key.get_secret_value()) for key in keys]

    def __repr__(self) -> str:
        return f"KeyRing({len(self._digests)} keys)"

    def opens(self, presented: Iterable[str]) -> bool:
        """Whether one of `presented`, whatever a client has sent, is one of the keys; each is compared with all."""
        fits = False
        for text in presented:
            # What no key can be is not worth a digest: a header may be long, and a client may send many of them.
            if len(text) > MAX_KEY_CHARS or not text.isascii():
                continue
            digest = _digest(text)
            for known in self._digests:
                fits |= hmac.compare_digest(known, digest)
        return fits


class Guard:
    """Refuses requests to Jitney's own routes that lack the key their route needs."""

    def __init__(self, settings: Settings) -> None:
        keys = {
            Access.INFERENCE: settings.api_keys or (),
            Access.METRICS: (settings.metrics_key,),
            Access.ADMIN: (settings.admin_token,),
        }
        self._known: dict[tuple[str, bool], Access] = {}
        self._rings = {access: KeyRing(filter(None, some)) for access, some in keys.items() if any(some)}
        self._inference = self._rings.get(Access.INFERENCE)

    def admits_to_predict(self, environ: dict[str, Any]) -> bool:
        """Whether a request with this environ may predict."""
        ring = self._inference
        return ring is None or ring.opens(_presented(environ))

    def check(self, request: Request) -> None:
        """Raise Unauthorized or Forbidden for a request to one of Jitney's routes that must not get to its view."""
        if request.method == "OPTIONS":
            return
        access = self._access(request)
        ring = self._rings.get(access)
        if ring is None:
            if access is Access.ADMIN:
                raise Forbidden("loading and unloading models over HTTP is switched off; ADMIN_TOKEN switches it on")
            return
        if not ring.opens(_presented(request.environ)):
            raise Unauthorized("a key is needed here, as Authorization: Bearer or X-API-Key; none that fits was sent")

    def _access(self, request: Request) -> Access:
        """What the route needs, worked out once for each."""
        endpoint, reads = request.endpoint or "", request.method in _READING
        known = self._known.get((endpoint, reads))
        if known is None:
            known = self._known[endpoint, reads] = access_of(endpoint, reads=reads)
        return known


def access_of(endpoint: str, *, reads: bool) -> Access:
    """What a route of Jitney's needs. reads: whether its method is one that asks and changes nothing."""
    marked: Access | None = getattr(current_app.view_functions.get(endpoint), _MARK, None)
    if marked is not None:
        return marked
    if endpoint == f"{BLUEPRINT}.metrics":
        return Access.METRICS
    return Access.OPEN if reads else Access.INFERENCE


def _presented(environ: dict[str, Any]) -> list[str]:
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    bearer = [token.strip(" ")] if scheme.lower() == "bearer" else []
    return [*bearer, environ.get("HTTP_X_API_KEY", "")]


def _digest(text: str) -> bytes:
    return sha256(text.encode("ascii")).digest()
