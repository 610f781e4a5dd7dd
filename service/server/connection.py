"""A client's connection, as the gunicorn worker looks at it before, during and after its requests."""

from __future__ import annotations

import math
import socket
from contextlib import suppress
from typing import Any

from gunicorn.workers.gthread import TConn

from service.server.overload import Place, Way
from service.server.request_head import MAX_HEAD_BYTES
from service.server.unread_body import rest_of_body

# How much is read of a connection that was answered for the last time, so that the answer is not lost to a reset.
LINGER_BYTES = 64 * 1024 * 1024


class Connection(TConn):  # type: ignore[misc]
    """A client's connection.

    Written by the thread that serves it: `served_since`, when a thread took it up, None as long as it waits for one;
    `body`, of the request that is being served, None as long as its head has not been read; `answered_at`, when the
    answer began. Written by the main thread: `place`, where its request was sent; `arrived_at`, when the whole head of
    that was there; `head`, its first bytes, None where they cannot be seen; `seen_bytes`, how much of a head that is
    not whole; `left_bytes`, how much is still read from it after its last answer.
    """

    served_since: float | None = None
    body: Any = None
    answered_at: float | None = None
    place: Place = Place(Way.MAIN)
    arrived_at: float = 0.0
    head: bytes | None = None
    seen_bytes: int = -1
    left_bytes: int = LINGER_BYTES

    def forget_request(self) -> None:
        """Be ready for the next one."""
        self.served_since = self.body = self.answered_at = None

    def arrived(self) -> bytes | None:
        """What has come of the next request, left where it is; None at the end of the stream."""
        kept = self._kept()
        try:
            fresh: bytes = self.sock.recv(MAX_HEAD_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return kept
        except OSError:
            return None
        return kept + fresh or None

    def wake_beyond(self, arrived: bytes) -> None:
        """Have the poller call when there is more than `arrived`, or no more will come."""
        self._wake_at(len(arrived) - len(self._kept()) + 1)
        self.seen_bytes = len(arrived)

    def wake_as_usual(self) -> None:
        """Undo `wake_beyond`, under which whoever reads would wait for as much too."""
        self._wake_at(1)
        self.seen_bytes = -1

    def _wake_at(self, unread_bytes: int) -> None:
        # Local sockets have no such mark: the poller calls at once, and then there is nothing more.
        with suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, unread_bytes)

    def _kept(self) -> bytes:
        """What was read together with the end of the request before, and is out of the socket already."""
        return b"" if self.parser is None else self.parser.unreader.buf.getvalue()

    def give_up_sending_after(self, idle_s: float) -> None:
        """Have the system end the connection when its client has read nothing for so long while there is something."""
        with suppress(OSError, AttributeError):  # local sockets cannot, nor can all systems
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(idle_s * 1000))

    def shut(self, how: int) -> None:
        """Stop reading or sending, whichever thread is at it."""
        # Not the method of a TLS socket, which would go on to send in clear text.
        with suppress(OSError):  # the client may have been faster
            socket.socket.shutdown(self.sock, how)

    @property
    def is_unfinished(self) -> bool:
        """Whether the thread that has taken the request up waits for the rest of it, or has not asked for it yet."""
        return self.body is None or rest_of_body(self.body) > 0
