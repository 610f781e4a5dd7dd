"""From the bytes of clients to requests for threads: a request gets to a thread when all of it has come."""

from __future__ import annotations

import time
from collections.abc import Callable

from service.server.connection import Connection, State
from service.server.departures import Departures
from service.server.head_parser import HeadParser
from service.server.overload import Way
from service.server.poller import Poller
from service.server.traffic import Traffic

# What is read at first, as nearly all requests for a prediction are smaller; and of a body that is known to be longer.
_PIECE_BYTES = 16 * 1024
_LARGE_PIECE_BYTES = 1024 * 1024

# How long the rest of a body is waited for before a thread may take the request up: the app may refuse it unread.
EARLY_S = 0.25

# A connection that has been silent for so long makes room for a new one when there are too many.
SILENT_S = 1.0

# Where a head may end, or where it is none, and gunicorn's parser is to say so at once.
_ENDS = (b"\n\r\n", b"\n\n")


class Reception:
    """Reads what clients send, and hands over what is whole.

    A request that is not whole waits here, holding no thread, until its time is up: that runs from its first byte, so
    that nobody gains any by sending a byte now and then. Some may have a thread earlier, but never more than half of
    the threads are held by clients that still send.

    `hand_over`: gives a connection, with its request, to the threads of its place. `refuse`: answers a request in the
    app's stead, with this status, and ends its connection. `fail`: does so where something went wrong here.

    *Thread:* whoever owns the connection; `received` and `look` are the main thread's.
    """

    def __init__(
        self,
        poller: Poller,
        traffic: Traffic,
        parser: HeadParser,
        departures: Departures,
        threads: int,
        keepalive_s: float,
        hand_over: Callable[[Connection], None],
        refuse: Callable[[Connection, int], None],
        fail: Callable[[Connection, Exception], None],
    ) -> None:
        self._poller = poller
        self._traffic = traffic
        self._parser = parser
        self._departures = departures
        self._most_owing = max(1, threads // 2)
        self._keepalive_s = keepalive_s
        self._hand_over = hand_over
        self._refuse = refuse
        self._fail = fail
        self.has_half = False  # seen in the last look: one that is not whole, and may soon be handed over all the same

    def received(self, claimed: list[Connection]) -> None:
        """Something has happened on each of these."""
        # Handed over together: a thread that runs in between would hold up the reading of the others.
        whole = [conn for conn in claimed if self._has_request(conn)]
        for conn in whole:
            self._hand_over(conn)

    def _has_request(self, conn: Connection) -> bool:
        """Whether there is a request to hand over; if not, the connection is cared for otherwise."""
        try:
            return self._goes_on(conn)
        except Exception as error:  # one client's fault, or ours, and not the end of all others
            self._fail(conn, error)
            return False

    def welcome(self, conn: Connection) -> None:
        """Wait for the first bytes of a connection, which may be there."""
        if self._has_request(conn):
            self._hand_over(conn)

    def _next_request(self, conn: Connection, arrived: bytes | bytearray) -> None:
        conn.forget_request()
        if not arrived:
            self._await_first_byte(conn)
            return
        conn.arrived = arrived
        conn.since = time.monotonic()
        if self._is_whole(conn, conn.since):
            self._hand_over(conn)

    def _goes_on(self, conn: Connection) -> bool:
        if conn.state is State.LINGERING:
            self._departures.drain(conn)
            return False
        if conn.state is not State.SENDING:
            return self._reads_whole(conn)
        if self._departures.send_more(conn):
            self.after_answer(conn)
        return False

    def after_answer(self, conn: Connection) -> None:
        """All of an answer is sent: end the connection, or go on with what `conn.arrived` has of the next request."""
        try:
            if conn.answer.must_close:
                self._departures.linger(conn)
            else:
                self._next_request(conn, conn.arrived)
        except Exception as error:
            self._fail(conn, error)

    def _await_first_byte(self, conn: Connection) -> None:
        conn.state = State.IDLE
        conn.deadline = time.monotonic() + self._keepalive_s
        self._poller.arm(conn)

    def _reads_whole(self, conn: Connection) -> bool:
        """Read what has come; whether there is a request to hand over now."""
        needed = conn.needed_bytes
        size = _PIECE_BYTES if needed is None else min(needed - len(conn.arrived), _LARGE_PIECE_BYTES)
        try:
            data = conn.sock.recv(size)
        except BlockingIOError:  # told twice, or a new connection
            if conn.arrived:
                self._poller.arm(conn)
            else:
                self._await_first_byte(conn)
            return False
        except OSError:
            self._departures.end(conn)
            return False
        now = time.monotonic()
        if not data:
            conn.has_ended = True
            conn.parse_at_bytes = 0
            if not conn.arrived or not (conn.head_bytes or self._has_head(conn, now)):  # there is no request
                self._departures.end(conn)
                return False
        elif not conn.arrived:
            conn.arrived = data
            conn.since = now
        else:
            if isinstance(conn.arrived, bytes):
                conn.arrived = bytearray(conn.arrived)
            conn.arrived += data
        return self._is_whole(conn, now)

    def _is_whole(self, conn: Connection, now: float) -> bool:
        """Whether what has arrived is to be handed over now; if not, the rest is waited for."""
        if not conn.head_bytes and not self._has_head(conn, now):
            if len(conn.arrived) > self._parser.max_head_bytes:
                self._refuse(conn, 431)
                return False
        elif self._may_be_handed_over(conn, now):
            return True
        self._await_rest(conn)
        return False

    def _has_head(self, conn: Connection, now: float) -> bool:
        """Whether the head is there. It is parsed as seldom as can be: a head may come a byte at a time."""
        arrived = conn.arrived
        if len(arrived) < conn.parse_at_bytes and not _ends_behind(arrived, conn.searched_bytes):
            conn.searched_bytes = len(arrived)
            return False
        if not self._parser.judge(conn):
            conn.searched_bytes = len(arrived)
            conn.parse_at_bytes = 2 * len(arrived)
            return False
        conn.whole_head_at = now
        conn.early_at = conn.since + EARLY_S
        if conn.environ is not None and "HTTP_EXPECT" in conn.environ:
            conn.early_at = now  # the client waits too
        return True

    def _may_be_handed_over(self, conn: Connection, now: float) -> bool:
        """Decide over the threads of a request whose head is there, and whether it is time for them."""
        traffic = self._traffic
        conn.place = place = traffic.place(conn.arrived)
        if not conn.is_owing or place.way is not Way.MAIN or not traffic.accepts_work:
            return True  # whole, or to be refused unread
        body_bytes = 0 if conn.needed_bytes is None else conn.needed_bytes - conn.head_bytes
        if now < conn.early_at and body_bytes <= traffic.max_body_bytes:
            return False
        return len(traffic.owing) < self._most_owing

    def _await_rest(self, conn: Connection) -> None:
        if not self._traffic.keep(conn, len(conn.arrived)):
            self._refuse(conn, 503)
            return
        conn.state = State.HALF
        conn.deadline = conn.since + self._traffic.patience_s
        self._poller.arm(conn)

    def look(self, now: float) -> None:
        """Hand over what has waited long enough for a thread, and give up what has been waited for long enough."""
        self.has_half = False
        for conn in self._poller.waiting():
            self.has_half = self.has_half or conn.state is State.HALF
            if conn.deadline <= now:
                if self._poller.claim(conn):
                    self._give_up(conn)
            elif conn.state is State.HALF and 0.0 < conn.early_at <= now and self._poller.claim(conn):
                if self._may_be_handed_over(conn, now):
                    self._hand_over(conn)
                else:
                    self._await_rest(conn)

    def _give_up(self, conn: Connection) -> None:
        if conn.state is State.HALF:
            self._refuse(conn, 408)
        else:
            self._departures.end(conn)

    def make_room(self, now: float) -> None:
        """Let the connection go that has been silent for longest: a newcomer may be a probe, and would wait unseen."""
        silent = {conn: self._silent_since(conn) for conn in self._poller.waiting()}
        silent = {conn: since for conn, since in silent.items() if since + SILENT_S <= now}
        # Such as send nothing go before those that send slowly.
        for conn in sorted(silent, key=lambda conn: (conn.state is not State.IDLE, silent[conn])):
            if self._poller.claim(conn):
                self._departures.end(conn)
                return

    def _silent_since(self, conn: Connection) -> float:
        if conn.state is State.IDLE:
            return conn.deadline - self._keepalive_s
        return conn.since if conn.state is State.HALF else float("inf")

    def let_go(self, *states: State) -> None:
        """End all connections that wait in one of these states."""
        for conn in self._poller.waiting():
            if conn.state in states and self._poller.claim(conn):
                self._departures.end(conn)


def _ends_behind(arrived: bytes | bytearray, searched_bytes: int) -> bool:
    """Whether a head ends in what has come behind those bytes, or across them."""
    start = max(0, searched_bytes - 2)
    return any(arrived.find(end, start) >= 0 for end in _ENDS)
