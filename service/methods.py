"""The methods that are told apart where requests are counted and logged; imports nothing, as every side needs it."""

from __future__ import annotations

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def method_label(method: str) -> str:
    """`method`, or `other` for what a client may have made up."""
    return method if method in _METHODS else "other"
