"""How connections end: their last bytes are sent, and no answer is lost to a reset."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from service.server.answer import ClientGone
from service.server.connection import Connection, State
from service.server.poller import Poller
from service.server.traffic import Traffic

# How long, and how much, a connection that was answered for the last time is read on: to close it while the client
# still sends would be a reset, which takes the answer along.
LINGER_S = 2.0
STOP_LINGER_S = 1.0  # where the end of the server waits for that
LINGER_BYTES = 64 * 1024 * 1024

_PIECE_BYTES = 256 * 1024


class Departures:
    """The ways out. *Thread:* whoever owns the connection."""

    def __init__(self, poller: Poller, traffic: Traffic) -> None:
        self._poller = poller
        self._traffic = traffic

    def end(self, conn: Connection) -> None:
        """Close it now."""
        if conn.counted_bytes:
            self._traffic.keep(conn, 0)
        self._traffic.open.discard(conn)
        with suppress(OSError):
            conn.sock.close()

    def linger(self, conn: Connection) -> None:
        """Say that nothing more will be sent, and read on until the client has closed its side too."""
        if conn.counted_bytes:
            self._traffic.keep(conn, 0)
        try:
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.end(conn)  # it is closed already
            return
        conn.state = State.LINGERING
        conn.deadline = time.monotonic() + (STOP_LINGER_S if self._traffic.stops else LINGER_S)
        conn.left_bytes = LINGER_BYTES
        self._poller.arm(conn)

    def drain(self, conn: Connection) -> None:
        """Read of a connection that ends, and close it when there is nothing more, or enough."""
        try:
            data = conn.sock.recv(_PIECE_BYTES)
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data is not None:
            conn.left_bytes -= len(data)
        if data == b"" or conn.left_bytes <= 0:
            self.end(conn)
        else:
            self._poller.arm(conn)

    def leave_rest_to_poller(self, conn: Connection) -> None:
        """Have the rest of an answer sent without a thread."""
        conn.state = State.SENDING
        conn.deadline = time.monotonic() + self._traffic.patience_s
        self._poller.arm(conn)

    def send_more(self, conn: Connection) -> bool:
        """Send what the client has made room for; whether that was all, and the connection goes on."""
        try:
            is_sent = conn.answer.send_more()
        except ClientGone:
            self.end(conn)
            return False
        if not is_sent:
            conn.deadline = time.monotonic() + self._traffic.patience_s
            self._poller.arm(conn)
            return False
        self._traffic.keep(conn, 0)
        return True
