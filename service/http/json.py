"""JSON answers: one way to write them, for every route."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson
from flask import Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


JSON = "application/json"


class JsonResponse(Response):
    """An answer that goes out as it is, where Werkzeug would find nothing left to work out."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Send the body, whose length was set with it; what is not one piece of bytes is left to Werkzeug."""
        body = self.response
        if (
            self.status_code == 200
            and type(body) is list
            and len(body) == 1
            and type(body[0]) is bytes
            and environ["REQUEST_METHOD"] != "HEAD"
            and not self._on_close
        ):
            start_response(self.status, self.headers.to_wsgi_list())
            return body
        return super().__call__(environ, start_response)


def to_json(body: Any) -> bytes:
    """`body` may hold NumPy arrays; float32 is written in its own shortest form."""
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def json_response(body: Any, status: int = 200, *, content_type: str = JSON) -> Response:
    """An answer with that body, see `to_json`."""
    return JsonResponse(to_json(body), status, content_type=content_type)
