"""How much of a request's body nobody has read, as gunicorn's reader of it tells."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from typing import Any

# A longer rest is not worth reading for the sake of the connection: gunicorn stops at 64 KiB, and closes a connection
# that was promised to stay.
WORTH_READING_BYTES = 64 * 1024 - 1


def rest_of_body(stream: Any) -> int:
    """Bytes of the body that nobody has read; of a chunked one, whose length is not known, too many or none."""
    reader = getattr(stream, "reader", None)
    length = getattr(reader, "length", None)
    if length is not None:
        return int(length)
    ended = reader is None or getattr(reader, "parser", None) is None or type(reader).__name__ == "EOFReader"
    return 0 if ended else WORTH_READING_BYTES + 1


def bytes_in_socket(sock: socket.socket) -> int:
    """How much can be read from it without waiting for its client."""
    unread = fcntl.ioctl(sock.fileno(), termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", unread)[0])
