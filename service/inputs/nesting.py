"""How deep JSON may nest."""

from __future__ import annotations

from typing import Any

from service.errors import MalformedBody

# Containers inside each other, the body's own object among them; the instances' elements lie in two of those.
MAX_DEPTH = 32
MAX_DEPTH_OF_INSTANCE = MAX_DEPTH - 2


def refuse_if_deep(value: Any, max_depth: int = MAX_DEPTH) -> None:
    """Raise MalformedBody when `value` nests more than `max_depth` deep.

    It looks at every element, so it is asked where something is wrong already: valid input nests only as deep as the
    model's input does.
    """
    level = _containers([value])
    for _ in range(max_depth):
        if not level:
            return
        level = [child for part in level for child in _containers(part.values() if type(part) is dict else part)]
    if level:
        raise too_deep()


def too_deep() -> MalformedBody:
    """The error for a body that nests deeper than MAX_DEPTH."""
    return MalformedBody(f"the body nests more than {MAX_DEPTH} deep")


def _containers(values: Any) -> list[Any]:
    return [value for value in values if type(value) in (list, dict)]
