"""Messages on a stream: a fixed header, a JSON head, and a body of raw bytes. Nothing in them is ever run as code."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

Buffer = bytes | bytearray | memoryview

# What every frame begins with, so that a stranger on the socket is noticed at its first bytes.
_MAGIC = b"JtN1"
_HEADER = struct.Struct("!4sBIQ")  # magic, kind, bytes of the head, bytes of the body

# The largest head and body that are taken, bytes together: more than MAX_INSTANCES pictures of usual models.
MAX_FRAME_BYTES = 1 << 30

# Every part of a body begins at a multiple of this, bytes: NumPy copies an array that is not aligned.
ALIGNMENT = 16

# Small frames are taken many at a time, and larger ones read to where they stay, bytes.
_READ_BYTES = 1 << 18

# Below this a copy costs less than one more call of the system, bytes.
_JOIN_BYTES = 1 << 16

_PADDING = bytes(ALIGNMENT)


class FrameError(Exception):
    """What came is no frame; nothing that follows on this connection can be understood."""


class FrameKind(IntEnum):
    """What a frame is about. The first two go to the owner, the others to a front end."""

    ASK = 1  # rows of requests, all of one lane
    CANCEL = 2  # requests whose callers have left
    MODEL = 3  # the model is loaded, and this is what it is
    FAILED = 4  # the model could not be loaded
    STATE = 5  # how much waits, and whether the worker thread is well
    ANSWER = 6  # results and failures


class Frame(NamedTuple):
    """One message. `head`: what its JSON says. `body`: may be written to, and is nobody else's."""

    kind: FrameKind
    head: Any
    body: memoryview


def encoded(kind: FrameKind, head: Any, parts: Sequence[Buffer] = ()) -> list[Buffer]:
    """The bytes of a frame, to be sent one after the other. Raises FrameError for one that nobody would take.

    head: of JSON types; also NaN and integers of any size. parts: of the body, contiguous.
    """
    text = json.dumps(head, separators=(",", ":")).encode()
    body: list[Buffer] = []
    body_bytes = 0
    for part in parts:
        size = _size(part)
        gap = -size % ALIGNMENT
        body += [part, _PADDING[:gap]] if gap else [part]
        body_bytes += size + gap
    if len(text) + body_bytes > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(text) + body_bytes} bytes is over the limit of {MAX_FRAME_BYTES}")
    return [_HEADER.pack(_MAGIC, kind, len(text), body_bytes) + text, *body]


def send(connection: socket.socket, buffers: Sequence[Buffer]) -> None:
    """Send `buffers` in order, small ones together. Raises OSError where the other side is gone or takes nothing."""
    small: list[Buffer] = []
    waiting_bytes = 0
    for buffer in buffers:
        size = _size(buffer)
        if waiting_bytes + size > _JOIN_BYTES and small:
            connection.sendall(b"".join(small))
            small, waiting_bytes = [], 0
        if size > _JOIN_BYTES:
            connection.sendall(buffer)
        else:
            small.append(buffer)
            waiting_bytes += size
    if small:
        connection.sendall(b"".join(small))


class FrameReader:
    """Takes frames from a blocking stream socket. *Thread:* one."""

    def __init__(self, connection: socket.socket, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._connection = connection
        self._max_frame_bytes = max_frame_bytes
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._start = self._end = 0

    def read(self) -> Frame | None:
        """The next frame; None when the other side has closed the stream between two frames.

        Raises FrameError for what is no frame, or for half of one; OSError for a broken connection.
        """
        header = self._take(_HEADER.size, may_end=True)
        if header is None:
            return None
        magic, kind, head_bytes, body_bytes = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise FrameError("it does not begin like a frame")
        if head_bytes + body_bytes > self._max_frame_bytes:
            raise FrameError(f"a frame of {head_bytes + body_bytes} bytes; the limit is {self._max_frame_bytes}")
        text, body = self._take(head_bytes), self._take(body_bytes)
        assert text is not None
        assert body is not None
        try:
            return Frame(FrameKind(kind), json.loads(text), memoryview(body))
        except (ValueError, RecursionError) as error:
            raise FrameError("its head is none") from error

    def _take(self, count: int, *, may_end: bool = False) -> bytearray | None:
        """The next `count` bytes; None where the stream ends before the first, if it may."""
        taken = bytearray(count)
        view = memoryview(taken)
        filled = 0
        while filled < count:
            if self._start < self._end:
                some = min(count - filled, self._end - self._start)
                view[filled : filled + some] = self._buffer[self._start : self._start + some]
                self._start += some
            elif count - filled >= _READ_BYTES:
                some = self._connection.recv_into(view[filled:])
            else:
                self._start, self._end = 0, self._connection.recv_into(self._buffer)
                if self._end:
                    continue
                some = 0
            if not some:
                if may_end and not filled:
                    return None
                raise FrameError("the stream ends within a frame")
            filled += some
        return taken


def _size(part: Buffer) -> int:
    return part.nbytes if isinstance(part, memoryview) else len(part)
