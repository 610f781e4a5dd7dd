"""Closing a listening socket so that no client is lost who has connected already."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from typing import Any

# linux/filter.h: one instruction, "return 0 bytes of the packet", that is: drop it. Offered by Linux since 2.2.
_SO_ATTACH_FILTER = 26
_DROP_EVERYTHING = struct.pack("HBBI", 0x06, 0, 0, 0)


def let_nobody_else_in(listener: Any) -> None:
    """Drop handshakes from now on, so that nobody slips in between the last accept and the close.

    The client's system tries again a second later, and is then refused.
    """
    if sys.platform != "linux" or listener.sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    program = ctypes.create_string_buffer(_DROP_EVERYTHING)
    try:
        listener.sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
    except OSError:
        return  # a sandbox may forbid it; then the gap of some microseconds stays


def is_held_by(pid: int, listener: Any) -> bool:
    """Whether process `pid` has the socket open; True when that cannot be seen, False when it is closed here."""
    if listener.sock is None:
        return False
    try:
        wanted = f"socket:[{os.fstat(listener.fileno()).st_ino}]"
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(os.readlink(entry.path) == wanted for entry in entries)
    except OSError:
        return True
