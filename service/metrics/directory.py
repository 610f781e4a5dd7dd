"""The directory through which the worker processes of one service count together.

gunicorn's master prepares it before any of them lives. Nothing here may load the client library, which looks for the
directory once, when it is imported.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, MutableMapping
from pathlib import Path

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

# The client library still follows the name of its early releases, too.
_VARIABLES = (VARIABLE, VARIABLE.lower())

_LIBRARY = "prometheus_client"


class NoDirectory(RuntimeError):
    """The worker processes cannot count together; the message says why, and what changes it."""


def count_together(
    environ: MutableMapping[str, str] = os.environ, *, owner: tuple[int, int] | None = None, is_upgrade: bool = False
) -> Path | None:
    """Have every process that is started from now on count in one directory, empty of what others have counted before.

    It is `PROMETHEUS_MULTIPROC_DIR` where that is set, of which only the library's own files go; else a new one, which
    is returned and is the caller's to remove. owner: user and group of the processes, where those are not this one's.
    is_upgrade: the processes of another master still count there, and what they have counted stays. Raises NoDirectory.
    """
    if _LIBRARY in sys.modules:
        raise NoDirectory(
            f"{_LIBRARY} was imported before the worker processes were started, and would count each of them apart: "
            "leave it to the app, or set WEB_WORKERS=1"
        )
    asked = next((environ[name] for name in _VARIABLES if environ.get(name)), None)
    count_alone(environ)
    try:
        directory = Path(tempfile.mkdtemp(prefix="jitney-metrics-")) if asked is None else Path(asked).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        if not is_upgrade:
            for file in directory.glob("*.db"):
                file.unlink()
        if asked is None and owner is not None:
            os.chown(directory, *owner)
    except OSError as error:
        raise NoDirectory(
            f"worker processes need a directory to count in, and {error.filename} cannot be it: {error.strerror} "
            f"({VARIABLE}, or TMPDIR)"
        ) from error
    environ[VARIABLE] = str(directory)
    return directory if asked is None else None


def count_alone(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Have a process count for itself, whatever is set; whether that changes anything."""
    were_set = [environ.pop(name, None) for name in _VARIABLES]
    return any(were_set)


def counts_together(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Whether processes that are started from now on count together."""
    return VARIABLE in environ


def forget_process(pid: int) -> None:
    """A worker process has ended: what it counted stays, what told its present state goes. *Thread:* the master's."""
    from prometheus_client import multiprocess  # not before there is a directory

    mark_dead: Callable[[int], None] = multiprocess.mark_process_dead
    mark_dead(pid)


def remove(directory: Path) -> None:
    """The service has ended, and nobody will read what it counted."""
    shutil.rmtree(directory, ignore_errors=True)
