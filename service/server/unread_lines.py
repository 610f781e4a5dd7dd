"""Lines of `.env` that have changed since the start: a reload does not read them, and whoever reloads may expect it."""

from __future__ import annotations

from pathlib import Path

from dotenv import dotenv_values


class UnreadLines:
    """Remembers the file as it is now."""

    def __init__(self, path: Path = Path(".env")) -> None:
        self._path = path.absolute()
        self._read = self._values() or {}

    def names(self) -> list[str]:
        """The variables whose lines have come, gone or changed; of their values nothing is told. None where the file
        cannot be read, which is for the next start to say.
        """
        now = self._values()
        if now is None:
            return []
        return sorted(name for name in {*self._read, *now} if self._read.get(name, "") != now.get(name, ""))

    def _values(self) -> dict[str, str | None] | None:
        # The master calls this, and nothing that is in a file may end it.
        try:
            return dotenv_values(self._path)
        except (OSError, ValueError):
            return None
