"""TorchServe's handler around the models of `work`; it is given the bodies of a batch of requests."""

from __future__ import annotations

import os
import sys
from typing import Any

# TorchServe copies this file away before it runs it.
sys.path.insert(0, os.environ["PEER_SERVERS"])

import orjson
import work

_models: list[work.Model] = []


def handle(data: list[dict[str, Any]] | None, context: Any) -> list[bytes] | None:  # noqa: ARG001
    if not _models:
        _models.append(work.load())
    if data is None:
        return None
    bodies = [request.get("body") or request.get("data") for request in data]
    # A body with a JSON content type is parsed already.
    bodies = [orjson.dumps(body) if isinstance(body, dict) else bytes(body) for body in bodies]
    (model,) = _models
    return [work.encode(row) for row in model.predict([model.decode(body) for body in bodies])]
