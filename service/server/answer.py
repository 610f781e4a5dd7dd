"""What an app answers, on its way to the socket: as few sends as can be, and no byte that it did not mean."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from types import TracebackType
from typing import Any

from gunicorn import SERVER
from gunicorn.http.errors import InvalidResponseHeader, InvalidResponseHeaderName
from gunicorn.http.message import TOKEN_RE
from gunicorn.http.wsgi import HEADER_VALUE_RE, STATUS_RE
from gunicorn.util import hop_headers

ExcInfo = tuple[type[BaseException], BaseException, TracebackType]

# Whether an answer with this status has no length, and whether it has no body; of statuses that an app has used.
_known_statuses: dict[str, tuple[bool, bool]] = {}
_MOST_KNOWN_STATUSES = 1000

# Names that an app has used, so that each is looked at once: name -> in small letters. More would be made up.
_known_names: dict[str, str] = {}
_MOST_KNOWN_NAMES = 1000

# Longer bodies are sent at once: what they cost is not the waking of a client.
_LONGEST_WAITING_BYTES = 16 * 1024

_date = (0, "")


class ClientGone(OSError):
    """The client has left, or reads nothing."""


class Answer:
    """The answer to one request after another of one connection, as WSGI and gunicorn's own `Response` have it.

    `closes`: tells when the head is written whether the server ends connections. `patience_s`: how long a client may
    read nothing while a thread waits for it. `must_close`: the connection ends after this answer. `unsent`: the last
    bytes of an answer that the socket had no room for; nobody has waited for that. `may_wait`: an answer that is short,
    and there as a whole, need not be sent at once; it `waits` then, all of it in `unsent`. `status`, `headers`, `sent`:
    what an access log asks for; `sent` is the body's length.

    *Thread:* the one that serves the request.
    """

    __slots__ = (
        "_closes",
        "_head_is_sent",
        "_is_chunked",
        "_length",
        "_method",
        "_minor_version",
        "_omits_body",
        "_on_start",
        "_sock",
        "_upgrades",
        "headers",
        "may_wait",
        "must_close",
        "patience_s",
        "sent",
        "status",
        "unsent",
        "waits",
    )

    def __init__(self, sock: socket.socket, closes: Callable[[], bool]) -> None:
        self._sock = sock
        self._closes = closes
        self.patience_s = 0.0
        self.may_wait = False
        self.begin("GET", 1, must_close=False)

    def begin(
        self, method: str, minor_version: int, *, must_close: bool, on_start: Callable[[], None] | None = None
    ) -> None:
        """Be the answer to the next request. on_start: called when the app has begun to answer."""
        self._method = method
        self._minor_version = minor_version
        self._on_start = on_start
        self.must_close = must_close
        self.status: str | None = None
        self.headers: list[tuple[str, str]] = []
        self.sent = 0
        self.unsent: bytes | memoryview = b""
        self.waits = False
        self._length: int | None = None
        self._is_chunked = self._omits_body = self._head_is_sent = self._upgrades = False

    @property
    def has_begun(self) -> bool:
        """Whether the client has been sent something of it, or will be."""
        return self._head_is_sent

    def start_response(
        self, status: str, headers: Iterable[tuple[str, str]], exc_info: ExcInfo | None = None
    ) -> Callable[[bytes], None]:
        """WSGI's own."""
        if exc_info is not None:
            if self._head_is_sent:
                raise exc_info[1].with_traceback(exc_info[2])
        elif self.status is not None:
            raise AssertionError("start_response was called twice, and without exc_info")
        has_no_length, has_no_body = _known_statuses.get(status) or _judged(status)
        self.headers, self._length, self._upgrades = self._checked(headers)
        self.status = status
        self._omits_body = has_no_body or self._method == "HEAD"
        if has_no_length and self._length is not None:
            self.headers = [(name, value) for name, value in self.headers if name.lower() != "content-length"]
            self._length = None
        self._is_chunked = self._length is None and not self._omits_body and self._minor_version > 0
        if self._length is None and not self._is_chunked and not self._omits_body:
            self.must_close = True  # nothing else tells where the answer ends
        if self._on_start is not None:
            self._on_start()
        return self.write

    @staticmethod
    def _checked(headers: Iterable[tuple[str, str]]) -> tuple[list[tuple[str, str]], int | None, bool]:
        """Those that are sent, the length that they tell, and whether they ask for another protocol.

        The server decides for itself over the connection. Raises what gunicorn raises.
        """
        taken, length, upgrades = [], None, False
        for name, value in headers:
            lower = _known_names.get(name) or _checked_name(name)
            if not (value.isascii() and value.isprintable()) and HEADER_VALUE_RE.fullmatch(value) is None:
                raise InvalidResponseHeader(repr(name))  # the value may be what nobody else is to see
            value = value.strip(" \t")
            if lower == "content-length":
                length = int(value)
            elif lower in hop_headers:
                if lower == "connection":
                    upgrades = value.lower() == "upgrade"
                    continue
                if lower != "upgrade" or value.lower() != "websocket":
                    continue
            taken.append((name, value))
        return taken, length, upgrades

    def write(self, data: bytes) -> None:
        """WSGI's own: send `data`, and the head before the first of it."""
        self._emit(self._framed(data), is_last=False)

    def send(self, iterable: Iterable[bytes]) -> None:
        """Send all of the body. What is there as a whole goes out with the head, in one piece."""
        if type(iterable) is list and len(iterable) == 1 and self._is_all(body := iterable[0]):
            self.sent = len(body)
            self.waits = self.may_wait and len(body) <= _LONGEST_WAITING_BYTES
            self._emit(body, is_last=True)
            return
        if isinstance(iterable, (list, tuple)):
            self._emit(b"".join([self._framed(item) for item in iterable]) + self._end(), is_last=True)
            return
        for item in iterable:
            framed = self._framed(item)
            if framed:  # a head alone is not sent before the app has something to say, or nothing more
                self._emit(framed, is_last=self.sent == self._length)
        end = self._end()
        if end or not self._head_is_sent:
            self._emit(end, is_last=True)

    def _is_all(self, body: bytes) -> bool:
        """Whether this is the whole of a body whose length was announced, as most are: it goes out as it is."""
        return type(body) is bytes and len(body) == self._length and not self.sent and not self._omits_body

    def _framed(self, data: bytes) -> bytes:
        """`data` as it goes out: not more than was announced, and nothing where nothing may follow the head."""
        if not isinstance(data, bytes):
            raise TypeError("a part of the body is no bytes")
        if self._length is not None and len(data) > self._length - self.sent:
            data = data[: max(0, self._length - self.sent)]
        if not data or self._omits_body:
            return b""
        self.sent += len(data)
        return b"%X\r\n%b\r\n" % (len(data), data) if self._is_chunked else data

    def _end(self) -> bytes:
        """What follows the last byte of the body."""
        if self._length is not None and self.sent < self._length and not self._omits_body:
            self.must_close = True  # whoever waits for the rest learns that none will come
        return b"0\r\n\r\n" if self._is_chunked else b""

    def _emit(self, data: bytes, *, is_last: bool) -> None:
        if not self._head_is_sent:
            if self.status is None:
                raise AssertionError("the app answered without start_response")
            data = self._head() + data
            self._head_is_sent = True
        if data:
            self.unsent = data if self.waits else self._sent(data)
            if self.unsent and not is_last:
                self.wait_until_sent()

    def _head(self) -> bytes:
        self.must_close = self.must_close or self._closes()
        connection = "upgrade" if self._upgrades else "close" if self.must_close else "keep-alive"
        chunked = "Transfer-Encoding: chunked\r\n" if self._is_chunked else ""
        lines = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        return (
            f"HTTP/1.{self._minor_version} {self.status}\r\nServer: {SERVER}\r\nDate: {http_date()}\r\n"
            f"Connection: {connection}\r\n{chunked}{lines}\r\n"
        ).encode("latin-1")

    def _sent(self, data: bytes | memoryview) -> bytes | memoryview:
        """Send what the socket has room for; returns the rest."""
        try:
            sent_bytes = self._sock.send(data)
        except BlockingIOError:
            sent_bytes = 0
        except OSError as error:
            raise ClientGone from error
        return b"" if sent_bytes == len(data) else memoryview(data)[sent_bytes:]

    def send_more(self) -> bool:
        """Send of `unsent` what the socket has room for; whether all of it is sent. *Thread:* the owner's."""
        self.unsent = self._sent(self.unsent)
        return not self.unsent

    def wait_until_sent(self) -> None:
        """Wait for the client to read; raises ClientGone when it reads nothing for as long as `patience_s`."""
        poll = select.poll()
        poll.register(self._sock, select.POLLOUT)
        while self.unsent:
            if not poll.poll(self.patience_s * 1000):
                raise ClientGone("nothing was read")
            self.unsent = self._sent(self.unsent)

    def send_early_hints(self, headers: Iterable[tuple[Any, Any]]) -> None:
        """`wsgi.early_hints`: what a client may fetch already, in an answer before the answer."""
        if self._head_is_sent or self._minor_version == 0:
            return
        lines = ["HTTP/1.1 103 Early Hints\r\n"]
        for pair in headers:
            name, value = (text.decode("latin-1") if isinstance(text, bytes) else text for text in pair)
            _checked_name(name)
            if HEADER_VALUE_RE.fullmatch(value) is None:
                raise InvalidResponseHeader(repr(name))
            lines.append(f"{name}: {value.strip()}\r\n")
        self.unsent = self._sent("".join([*lines, "\r\n"]).encode("latin-1"))
        self.wait_until_sent()


def _judged(status: str) -> tuple[bool, bool]:
    """What `_known_statuses` has of it; raises ValueError for what is none."""
    if STATUS_RE.fullmatch(status) is None:
        raise ValueError("the status is none")
    code = int(status[:3])
    has_no_length = code < 200 or code == 204
    judged = has_no_length, has_no_length or code == 304
    if len(_known_statuses) < _MOST_KNOWN_STATUSES:
        _known_statuses[status] = judged
    return judged


def _checked_name(name: str) -> str:
    """`name` in small letters; raises what gunicorn raises for what is no name of a header."""
    if not isinstance(name, str):
        raise TypeError("the name of a header is no str")
    if TOKEN_RE.fullmatch(name) is None:
        raise InvalidResponseHeaderName(repr(name))
    lower = name.lower()
    if len(_known_names) < _MOST_KNOWN_NAMES:
        _known_names[name] = lower
    return lower


def http_date() -> str:
    """The time, in the words of HTTP; made once a second."""
    global _date
    now, (made_at, text) = int(time.time()), _date
    if now != made_at:
        text = formatdate(now, usegmt=True)
        _date = (now, text)
    return text
