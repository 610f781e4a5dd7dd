"""The model's own names in messages: some of them, and not at any length."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

# So many are shown in a message, and so much of each.
_MAX_LISTED = 5
_MAX_NAME_CHARS = 40


def listed(names: Collection[str]) -> str:
    """The first of `names`, and how many more there are."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(shown, islice(names, _MAX_LISTED))) + more


def shown(name: str) -> str:
    """One name, in quotes."""
    return repr(name if len(name) <= _MAX_NAME_CHARS else name[:_MAX_NAME_CHARS] + "...")
