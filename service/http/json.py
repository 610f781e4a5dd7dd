"""JSON answers: one way to write them, for every route."""

from __future__ import annotations

from typing import Any

import orjson
from flask import Response


def json_response(body: Any, status: int = 200, *, content_type: str = "application/json") -> Response:
    """`body` may hold NumPy arrays; float32 is written in its own shortest form."""
    return Response(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), status, content_type=content_type)
