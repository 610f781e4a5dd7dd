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
    level = [value]
    for _ in range(max_depth + 1):
        level = [part for part in level if type(part) in (list, dict)]
        if not level:
            return
        level = [child for part in level for child in (part.values() if type(part) is dict else part)]
    raise MalformedBody(f"the body nests more than {MAX_DEPTH} deep")
