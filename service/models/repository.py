"""A model repository on disk: `<root>/<name>/<version>/`, one bundle each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from loaders.errors import ModelError

# Also keeps a name that came with a request from leading anywhere else.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


class Repository:
    """The bundles below a directory. Nothing is remembered: what is added or removed on disk counts at once.

    Entries that cannot be a name or a version (files, hidden directories) are passed over.
    """

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def names(self) -> list[str]:
        """The models that have a version, sorted; raises ModelError when the directory cannot be read or holds none."""
        try:
            names = [name for name in _directories(self.root) if self.versions(name)]
        except OSError as error:
            raise ModelError(f"MODEL_REPOSITORY={self.root} cannot be read: {error.strerror}") from error
        if not names:
            raise ModelError(f"MODEL_REPOSITORY={self.root} holds no bundle at <name>/<version>/")
        return names

    def versions(self, name: str) -> list[str]:
        """The versions of a model, oldest first; empty when there is no such model."""
        if not _NAME.fullmatch(name):
            return []
        try:
            return sorted(_directories(self.root / name), key=_order)
        except OSError:
            return []

    def path(self, name: str, version: str) -> Path | None:
        """Where a version lies; None when it is not there."""
        if not (_NAME.fullmatch(name) and _NAME.fullmatch(version)):
            return None
        path = self.root / name / version
        return path if path.is_dir() else None


def newest(versions: Iterable[str]) -> str | None:
    """The highest version: runs of digits count as numbers, so that 10 comes after 9 and 1.10 after 1.9."""
    return max(versions, key=_order, default=None)


def _order(version: str) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.findall(r"\d+|[^\d.]+", version)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts], version


def _directories(parent: Path) -> list[str]:
    return sorted(entry.name for entry in parent.iterdir() if _NAME.fullmatch(entry.name) and entry.is_dir())
