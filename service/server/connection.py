"""A client's connection, and what is known of the request that is on its way, or being served, on it."""

from __future__ import annotations

import socket
from enum import Enum
from typing import Any

from service.server.answer import Answer
from service.server.overload import Place, Way


class State(Enum):
    """What a connection waits for."""

    IDLE = "idle"  # the first byte of a request
    HALF = "half"  # the rest of one
    SENDING = "sending"  # room for the rest of an answer
    SERVED = "served"  # a thread, which then has it
    LINGERING = "lingering"  # the client's side to be closed, after the last answer


class Connection:
    """A client's connection.

    Everything is read and written by its owner alone: the thread that serves its request, or, while it is armed in the
    `Poller`, whoever claims it there. It has one owner at a time, so that its requests never overlap.

    Of the connection: `base`: the variables that all its requests have in common. `is_trusted`: its client may say by
    which scheme it was reached. `has_ended`: that will send nothing more. `deadline`: when its state is given up.
    `counted_bytes`: what of it counts against the limit of what may be kept in memory. `left_bytes`: how much is still
    read after the last answer.

    Of the request: `arrived`: its bytes so far. `since`: when the first of them came, `time.monotonic()`;
    `whole_head_at`: when the last of its head did. `environ`: what the head says, None as long as it is not whole, or
    where gunicorn's own parser is needed to tell what is wrong with it. `head_bytes`: its length, 0 as long as it is
    not whole. `needed_bytes`: how long head and body are together, None where only their end tells. `is_plain`: the
    fast way carries the request. `parse_at_bytes`: how long a head that is not whole may get before it is looked at
    again; `searched_bytes`: how much of it has been searched for its end. `early_at`: when a thread may take it up
    although it is not whole. `place`: which threads it is for. `is_accepted`: it was handed to them before the server
    was told to stop.
    """

    __slots__ = (
        "answer",
        "arrived",
        "base",
        "client",
        "counted_bytes",
        "deadline",
        "early_at",
        "environ",
        "fd",
        "has_ended",
        "head_bytes",
        "is_accepted",
        "is_plain",
        "is_registered",
        "is_trusted",
        "left_bytes",
        "needed_bytes",
        "parse_at_bytes",
        "place",
        "searched_bytes",
        "server",
        "since",
        "sock",
        "state",
        "whole_head_at",
    )

    def __init__(self, sock: socket.socket, client: Any, server: Any, answer: Answer) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.client = client
        self.server = server
        self.answer = answer
        self.base: dict[str, Any] = {}
        self.is_trusted = False
        self.is_registered = False
        self.has_ended = False
        self.is_accepted = False
        self.state = State.IDLE
        self.place = Place(Way.MAIN)
        self.deadline = self.since = 0.0
        self.counted_bytes = 0
        self.left_bytes = 0
        self.forget_request()

    def __repr__(self) -> str:
        return f"<Connection fd={self.fd} {self.state.value} arrived={len(self.arrived)} needed={self.needed_bytes}>"

    def forget_request(self) -> None:
        """Be ready for the next one."""
        self.arrived: bytes | bytearray = b""
        self.environ: dict[str, Any] | None = None
        self.head_bytes = 0
        self.needed_bytes: int | None = None
        self.is_plain = False
        self.parse_at_bytes = self.searched_bytes = 0
        self.early_at = 0.0
        self.whole_head_at = 0.0

    @property
    def is_owing(self) -> bool:
        """Whether the client has not sent all of a request whose head is there, and may still do so."""
        if self.has_ended:
            return False
        if self.needed_bytes is None:
            return not self.arrived.endswith(LAST_CHUNK)
        return len(self.arrived) < self.needed_bytes

    def shut(self, how: int) -> None:
        """Stop reading or sending, whichever thread is at it. *Thread:* any."""
        try:
            self.sock.shutdown(how)
        except OSError:
            return  # the client may have been faster


# How a body in chunks ends, unless it has trailers; those who send trailers wait a moment longer.
LAST_CHUNK = b"\r\n0\r\n\r\n"
