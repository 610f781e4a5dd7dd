"""One front end, as the owner sees it: its rows are admitted as they come, and answered as they are done."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from service.batching.admission import Arrival
from service.batching.one_shot import OneShotEvent
from service.batching.policy import UNREAD_WAIT_S
from service.batching.tickets import Priority, Ticket
from service.errors import JitneyError
from service.sharing.asking import Asked, Lane, answer, asked
from service.sharing.conversation import hang_up, hear, send_gathered
from service.sharing.frames import Buffer, Frame, FrameError, FrameKind, encoded
from service.sharing.values import Convert

# A front end that takes nothing for this long, seconds, is given up with all that it has asked for.
SEND_S = 10.0

# More requests of one front end at a time than its threads could wait for: whoever sends them is none.
MAX_REQUESTS = 65_536


class Door(Protocol):
    """What of a `ThreadedBatcher` requests go through."""

    def announce(self) -> Arrival: ...

    def enter(
        self,
        rows: Sequence[Any],
        timeout_s: float,
        *,
        done: OneShotEvent,
        key: Any,
        lengths: Sequence[int] | None = None,
        priority: Priority = Priority.NORMAL,
        arrival: Arrival | None = None,
        origin: object | None = None,
        request_id: str = "",
    ) -> Ticket: ...

    def leave(self, ticket: Ticket) -> None: ...


class _Done(OneShotEvent):
    """Hands a request that is over to the thread that sends answers, instead of waking a waiter."""

    def __init__(self, outbox: queue.SimpleQueue[Any], number: int) -> None:
        super().__init__()
        self._outbox = outbox
        self.number = number

    def set(self) -> None:
        """The outcome is known. *Thread:* any; it never waits."""
        super().set()
        self._outbox.put(self)


class Peer:
    """Serves one connection with two threads. None of them ever keeps the worker thread waiting.

    The reader admits rows and withdraws them; the sender writes answers, and whatever `tell` is given, in groups. Where
    the front end goes, or sends what it should not, its requests are withdrawn and `on_end(peer)` is called; other
    front ends do not notice. How much can wait to be sent is bounded by what the front end has asked for.
    """

    def __init__(
        self,
        connection: socket.socket,
        door: Callable[[], Door],
        key_of: Callable[[Lane], Any],
        convert: Convert,
        on_end: Callable[[Peer], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._door = door
        self._key_of = key_of
        self._convert = convert
        self._on_end = on_end
        self._clock = clock
        self._coming = (0, 0.0)  # what the front end told last of requests that will follow, and when
        # Of _Done, refusals (number, error), frames (lists of buffers), and None at the end.
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # The reader adds, the sender takes out; single operations on a dictionary are atomic.
        self._inside: dict[int, Ticket] = {}
        limit_s = struct.pack("ll", int(SEND_S), int(SEND_S % 1 * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit_s)
        self._reader = threading.Thread(target=self._read, name="jitney-owner-reader", daemon=True)
        self._sender = threading.Thread(target=self._send, name="jitney-owner-sender", daemon=True)

    def __repr__(self) -> str:
        return f"<Peer inside={len(self._inside)}>"

    def start(self) -> None:
        """Serve it from now on."""
        self._sender.start()
        self._reader.start()

    def coming(self) -> int:
        """How many requests the front end has received that will soon be here. *Thread:* any; it never waits.

        What was told longer ago than any batch waits for it counts for nothing: some of them may never come.
        """
        count, told_at = self._coming
        return count if count and self._clock() - told_at < UNREAD_WAIT_S else 0

    def tell(self, kind: FrameKind, head: Any, parts: Sequence[Buffer] = ()) -> None:
        """Send a frame of the owner's own. *Thread:* any; it never waits."""
        self._outbox.put(encoded(kind, head, parts))

    def close(self, timeout_s: float) -> None:
        """Send what there is to send, and end the connection."""
        self._outbox.put(None)
        self._sender.join(timeout_s)
        hang_up(self._connection)
        self._reader.join(timeout_s)

    def _read(self) -> None:
        told = "a front end is disconnected"
        try:
            hear(self._connection, self._take, given_up=told, failed=told)
        finally:
            hang_up(self._connection)
            for number in list(self._inside):
                self._withdraw(number)
            self._outbox.put(None)
            self._sender.join(SEND_S)
            self._connection.close()
            self._on_end(self)

    def _take(self, frame: Frame) -> None:
        if frame.kind is FrameKind.ASK:
            self._admit(*asked(frame))
        elif frame.kind is FrameKind.CANCEL:
            for number in frame.head:
                self._withdraw(number)
        else:
            raise FrameError(f"a frame of kind {frame.kind.name} comes from the owner only")

    def _admit(self, lane: Lane, requests: Sequence[Asked], coming: int) -> None:
        """Admit what came in one frame; the eager policy waits until the last of it is inside."""
        door, key = self._door(), self._key_of(lane)
        arrival: Arrival | None = None
        try:
            for request in requests:
                if len(self._inside) >= MAX_REQUESTS or request.number in self._inside:
                    raise FrameError("more requests than a front end can have, or two of one number")
                try:
                    arrival = arrival or door.announce()
                    self._enter(door, key, request)
                except JitneyError as error:
                    self._outbox.put((request.number, error))
        finally:
            # In this order: when the last of these is inside, the worker thread looks who else is to be waited for.
            self._coming = coming, self._clock()
            if arrival is not None:
                arrival.release()

    def _enter(self, door: Door, key: Any, request: Asked) -> None:
        done = _Done(self._outbox, request.number)
        ticket = door.enter(
            request.rows,
            request.timeout_s,
            done=done,
            key=key,
            lengths=request.lengths,
            priority=request.priority,
            origin=request.origin,
            request_id=request.request_id,
        )
        self._inside[request.number] = ticket
        if done.is_set():
            # It may have been answered before it was known here, and then the sender has passed over it.
            self._outbox.put(done)

    def _withdraw(self, number: int) -> None:
        ticket = self._inside.pop(number, None)
        if ticket is not None:
            self._door().leave(ticket)

    def _send(self) -> None:
        send_gathered(self._connection, self._outbox, self._frames, failed="answers cannot be sent to a front end")

    def _frames(self, things: Sequence[Any]) -> list[Buffer]:
        """The answers in one frame, and those of the owner's own as they are."""
        done: list[tuple[int, Ticket]] = []
        refused: list[tuple[int, JitneyError]] = []
        buffers: list[Buffer] = []
        for thing in things:
            if isinstance(thing, _Done):
                ticket = self._inside.pop(thing.number, None)
                if ticket is not None:
                    self._door().leave(ticket)
                    done.append((thing.number, ticket))
            elif isinstance(thing, tuple):
                refused.append(thing)
            else:
                buffers += thing
        if done or refused:
            buffers += answer(done, refused, self._convert)
        return buffers
