"""Where front ends find their owner: a socket in a directory that only the service's user can enter."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import struct
import tempfile
from pathlib import Path

# Connections that have not been taken yet: every front end of two generations, and then some.
_BACKLOG = 128

# The system's limit for the path of a socket, bytes.
_MAX_PATH_BYTES = 107

_LOADING, _SERVES, _FAILED = 0, 1, 2


class NoPlace(RuntimeError):
    """There is nowhere for the socket; the message says why, and what changes it."""


class Place:
    """The socket of one owner, held by the master: connections wait there while an owner starts, or starts anew.

    What the owner has come to is told through memory that it shares with the master.
    """

    def __init__(self, owner: tuple[int, int] | None = None) -> None:
        """owner: user and group of the processes, where those are not this one's. Raises NoPlace."""
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="jitney-owner-"))  # for its user alone, and no one's guess
        except OSError as error:
            raise NoPlace(
                f"the owner of the model needs a directory for its socket: {error.strerror} (TMPDIR)"
            ) from error
        self.address = str(self._directory / "owner")
        if len(os.fsencode(self.address)) > _MAX_PATH_BYTES:
            self._remove()
            raise NoPlace(f"the path of a socket holds {_MAX_PATH_BYTES} bytes at most: set TMPDIR to a shorter one")
        try:
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind(self.address)
            self.listener.listen(_BACKLOG)
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                for path in (self._directory, self.address):
                    os.chown(path, *owner)
        except OSError as error:
            self._remove()
            raise NoPlace(f"the socket of the model's owner cannot be made: {error.strerror} (TMPDIR)") from error
        self._memory = mmap.mmap(-1, 1)

    @property
    def serves(self) -> bool:
        """Whether the owner has loaded its model."""
        return self._memory[0] == _SERVES

    @property
    def has_failed(self) -> bool:
        """Whether the owner never will have a model."""
        return self._memory[0] == _FAILED

    def tell(self, *, has_model: bool) -> None:
        """The load has ended, well or not. *Thread:* one of the owner."""
        self._memory[0] = _SERVES if has_model else _FAILED

    def vacate(self) -> None:
        """An owner has ended and the next one is about to begin."""
        self._memory[0] = _LOADING

    def close(self) -> None:
        """There will be no owner any more. *Thread:* the master's."""
        self.listener.close()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def is_own(connection: socket.socket) -> bool:
    """Whether the process at the other end runs as the user that this one runs as; the kernel knows."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())
