"""Requests that need gunicorn's own parser: a body in chunks or not whole yet, HTTP/1.0, and what is odd or wrong.

They have a thread while their clients still send. A time limit ends that, and so does the end of the server.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from gunicorn.http.errors import NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.http.wsgi import create

from service.server.unread_body import WORTH_READING_BYTES, bytes_in_socket, rest_of_body


class Source:
    """A socket to gunicorn's parser: first what has been read of it already, and an end where time is up.

    `deadline`: `time.monotonic()`. The socket stays as it is, and may be shut by another thread meanwhile.
    """

    def __init__(self, sock: socket.socket, arrived: bytes, deadline: float) -> None:
        self._sock = sock
        self._arrived = arrived
        self._taken_bytes = 0
        self._deadline = deadline

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes, b"" at the end of the stream; raises NoMoreData when time is up."""
        start = self._taken_bytes
        if start < len(self._arrived):
            self._taken_bytes += size
            return self._arrived[start : self._taken_bytes]
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while True:
            try:
                return self._sock.recv(size)
            except BlockingIOError:
                left_s = self._deadline - time.monotonic()
                if left_s <= 0 or not poll.poll(left_s * 1000):
                    raise NoMoreData(b"") from None

    def send(self, data: bytes) -> int:
        """For the go-ahead of `Expect: 100-continue`."""
        return self._sock.send(data)

    def rest(self) -> bytes:
        """What was read of the socket and is still here."""
        return self._arrived[self._taken_bytes :]


class SlowRequest:
    """One request as gunicorn parses it; making it raises gunicorn's own exceptions, NoMoreData where there is none.

    `request`: gunicorn's. `environ`: its WSGI variables.
    """

    def __init__(self, source: Source, sock: socket.socket, client: Any, server: Any, cfg: Any) -> None:
        self._source = source
        self._sock = sock
        self._parser = RequestParser(cfg, source, client)
        request = next(self._parser, None)
        if request is None:
            raise NoMoreData(b"")
        self.request: Request = request
        _, self.environ = create(self.request, source, client, server, cfg)
        self.environ["gunicorn.socket"] = sock
        self.environ["wsgi.multithread"] = True

    def must_close(self, *, may_wait: bool) -> bool:
        """Whether the connection ends for what has not been read of the body.

        may_wait: for the rest of it, where that is short enough to be read for the sake of the connection.
        """
        rest_bytes = rest_of_body(self.environ["wsgi.input"])
        return rest_bytes > (WORTH_READING_BYTES if may_wait else self._at_hand_bytes())

    def _at_hand_bytes(self) -> int:
        held_bytes = len(self._parser.unreader.buf.getvalue()) + len(self._source.rest())
        return held_bytes + bytes_in_socket(self._sock)

    def leave(self) -> bytes | None:
        """Read the rest of the body; what has come of the next request, None where its beginning is not known."""
        try:
            is_read = self._parser.finish_body(max_bytes=WORTH_READING_BYTES + 1)
        except Exception:  # a chunk that is none, or a client that has left: what follows is no request
            return None
        return self._parser.unreader.take_buffered() + self._source.rest() if is_read else None
