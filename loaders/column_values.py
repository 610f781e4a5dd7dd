"""Values for columns of a row that is made up."""

from __future__ import annotations

from typing import Any

_OF_TYPE: dict[str | None, Any] = {"boolean": False, "text": "a text"}


def column_value(kind: str | None, example: Any = None) -> Any:
    """What stands in a column of type `kind` (see `loaders.formats.columns`): `example`, where one is known."""
    return _OF_TYPE.get(kind, 0) if example is None else example
