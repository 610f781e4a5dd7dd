"""Bodies of predict requests, read from a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

JSON = "application/json"


UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent. `rows`: how many rows the model sees for it."""

    payload: bytes
    rows: int
    content_type: str = JSON


def json_body(body: dict[str, Any]) -> Body:
    """Raises ValueError for what is no body of a predict request."""
    return Body(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(), _rows(body))


def read_bodies(path: Path) -> list[Body]:
    """A body from each line that is not empty, sent as it stands there. Raises ValueError that names the line."""
    bodies = []
    # By line feeds alone: a text may hold what Unicode takes for the end of a line.
    for number, line in enumerate(path.read_bytes().removeprefix(UTF8_BOM).split(b"\n"), 1):
        text = line.strip()
        if not text:
            continue
        try:
            parsed = orjson.loads(text)  # as strict as the server
        except ValueError:
            raise ValueError(f"line {number} is not JSON: each line must be the body of a predict request") from None
        try:
            bodies.append(Body(text, _rows(parsed)))
        except ValueError as error:
            raise ValueError(f"line {number} {error}") from None
    if not bodies:
        raise ValueError("no bodies in it: each line must be the body of a predict request")
    return bodies


def _rows(body: Any) -> int:
    """How many rows the model sees for a body. Raises ValueError for what is none."""
    instances = body.get("instances") if isinstance(body, dict) else None
    if isinstance(instances, list) and instances:
        return len(instances)
    if isinstance(body, dict) and isinstance(body.get("text"), str):
        return 1
    raise ValueError('must be an object with "instances", a list that is not empty, or with "text"')
