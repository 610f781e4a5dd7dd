"""How many files, and with them connections, a process may have open."""

from __future__ import annotations

import resource
from typing import Any

# Files that a worker has open beside its connections: models, logs, libraries, sockets that listen.
OTHER_FILES = 256


def allow_open_files(wanted: int) -> int:
    """Raise the limit to `wanted` as far as the system lets this process; returns what holds now.

    Child processes inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


def make_suffice(server: Any) -> None:
    """Let gunicorn's master take no more connections than there may be files, and say so.

    A connection that cannot be opened is not refused: it waits unseen, and keeps the worker busy asking for it.
    """
    wanted = server.cfg.worker_connections
    possible = max(allow_open_files(wanted + OTHER_FILES) - OTHER_FILES, server.cfg.threads + 1)
    if possible < wanted:
        server.cfg.set("worker_connections", possible)
        server.log.warning(
            "%d connections at a time, as no more files may be open; ulimit -n %d lets it be %d",
            *(possible, wanted + OTHER_FILES, wanted),
        )
