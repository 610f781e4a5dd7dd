"""Bodies of predict requests, read from a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent. `rows`: how many rows the model sees for it."""

    payload: bytes
    rows: int
    content_type: str = JSON


def json_body(body: dict[str, Any]) -> Body:
    """Raises ValueError for what is no body of a predict request."""
    instances = body.get("instances")
    if isinstance(instances, list) and instances:
        rows = len(instances)
    elif isinstance(body.get("text"), str):
        rows = 1
    else:
        raise ValueError('must be an object with "instances", a list that is not empty, or with "text"')
    return Body(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(), rows)


def read_bodies(path: Path) -> list[Body]:
    """A body from each line that is not empty. Raises ValueError that names the line."""
    bodies = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            parsed = json.loads(line)
        except ValueError:
            raise ValueError(f"line {number} is not JSON: each line must be the body of a predict request") from None
        try:
            bodies.append(json_body(parsed if isinstance(parsed, dict) else {}))
        except ValueError as error:
            raise ValueError(f"line {number} {error}") from None
    if not bodies:
        raise ValueError("no bodies in it: each line must be the body of a predict request")
    return bodies
