"""How many files, and with them connections, a process may have open."""

from __future__ import annotations

import resource


def allow_open_files(wanted: int) -> int:
    """Raise the limit to `wanted` as far as the system lets this process; returns what holds now.

    Child processes inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft
