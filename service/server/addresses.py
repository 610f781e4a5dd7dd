"""Whether a server could listen where it is to, found out before gunicorn tries."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable
from typing import Any


def refuse_taken(addresses: Iterable[Any]) -> None:
    """End the start where one of gunicorn's addresses is not free; gunicorn itself tries for five seconds first."""
    for address in addresses:
        if isinstance(address, tuple) and not _is_handed_over() and not _is_free(address):
            sys.exit(f"jitney: {address[0]}:{address[1]} is in use or not an address of this machine (BIND, --bind)")


def _is_handed_over() -> bool:
    """Whether the listening sockets are there already: from systemd, or from the master that this one is to replace."""
    return "LISTEN_FDS" in os.environ or "GUNICORN_FD" in os.environ


def _is_free(address: tuple[str, int]) -> bool:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except (OSError, OverflowError):
            return False
        return True
