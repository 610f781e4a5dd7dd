"""A model repository on disk: `<root>/<name>/<version>/`, one bundle each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from loaders.bundle import BUNDLE_FILE
from loaders.errors import ModelError
from loaders.names import is_name

_NUMBERED = re.compile(r"v?(\d+(?:[.-]\d+)*)(.*)", re.ASCII)


class Repository:
    """The bundles below a directory. Nothing is remembered: what is added or removed on disk counts at once.

    Entries that cannot be a version are passed over: files, hidden directories, and directories without a bundle's
    description or a Hugging Face configuration. So a version can be copied to a hidden name and renamed when it is
    complete.
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
        if not is_name(name):
            return []
        try:
            return sorted(filter(partial(self._is_bundle, name), _directories(self.root / name)), key=_order)
        except OSError:
            return []

    def path(self, name: str, version: str) -> Path | None:
        """Where a version lies; None when it is not there."""
        if not (is_name(name) and is_name(version)):
            return None
        return self.root / name / version if self._is_bundle(name, version) else None

    def changed_at(self, name: str, version: str) -> float:
        """When the newest of the version's files was written, seconds since 1970; 0.0 when none can be seen."""
        directory = self.root / name / version
        times = [0.0]
        with suppress(OSError):
            times += [entry.stat().st_mtime for entry in (directory, *directory.iterdir())]
        return max(times)

    def passed_over(self) -> list[str]:
        """Directories that look like models or versions and are none, for the operator to see."""
        odd: list[str] = []
        with suppress(OSError):
            for entry in sorted(self.root.iterdir()):
                if entry.name.startswith(".") or not entry.is_dir():
                    continue
                good = set(self.versions(entry.name))
                inside = [one.name for one in entry.iterdir() if one.is_dir() and not one.name.startswith(".")]
                odd += [f"{entry.name}/{one}" for one in sorted(inside) if one not in good] or (
                    [] if good else [entry.name]
                )
        return odd

    def _is_bundle(self, name: str, version: str) -> bool:
        return any((self.root / name / version / marker).is_file() for marker in (BUNDLE_FILE, "config.json"))


def newest(versions: Iterable[str]) -> str | None:
    """The version to serve when none is named: the highest number, of 9 and 10 the latter, of 1.9 and 1.10 too.

    Numbers with something behind them, such as 2-rc1 or 2.bak, come after all plain numbers, names after both.
    """
    return max(versions, key=_order, default=None)


def _order(version: str) -> tuple[bool, bool, list[int], str]:
    match = _NUMBERED.fullmatch(version)
    if match is None:
        return False, False, [], version
    numbers, rest = match.groups()
    return not rest, True, [int(number) for number in re.findall(r"\d+", numbers)], version


def _directories(parent: Path) -> list[str]:
    return sorted(entry.name for entry in parent.iterdir() if is_name(entry.name) and entry.is_dir())
