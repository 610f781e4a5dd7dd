"""Whether this is still the process in which something was made."""

from __future__ import annotations

import os

_forks = 0


def _count() -> None:
    global _forks
    _forks += 1


# Asking the system for the number of the process takes longer than to take a lock, and a request would do it ten times.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


def forks() -> int:
    """How many forks lie between the process that imported this first and this one.

    What was made when it was another number was made in a parent process.
    """
    return _forks
