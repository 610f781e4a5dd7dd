"""The version of this distribution."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    """A checkout that is not installed has none."""
    try:
        return version("jitney")
    except PackageNotFoundError:
        return "0"


VERSION = _version()
