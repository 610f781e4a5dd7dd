"""Who is where in the worker process: what admission, batching, probes and the end of the process look at."""

from __future__ import annotations

import threading

from service.server.connection import Connection
from service.server.overload import MAX_BODY_BYTES, Overload, Place, Way

# How long a client may take to send a request, or read nothing of its answer, where no app has said it.
PATIENCE_S = 30.0

# How many bodies of the greatest length may be kept in memory before they are whole, and the least that may be kept.
_KEPT_BODIES = 16
_LEAST_KEPT_BYTES = 64 * 1024 * 1024


class Traffic:
    """The connections of a process by what they do.

    Sets, because entering and leaving one is a single step for every thread, and leaving twice does no harm: `open`
    have not been closed; `inside` have been given to the main threads, which are not done; `on_the_way` of those have
    not put their rows on the batcher; `owing` of those have a thread although their clients still send.

    `stops`: the process takes no more connections. `is_relieved`: but the service goes on, so that what still comes
    here is answered as ever.
    """

    def __init__(self, most_kept_open: int, keeps_open: bool) -> None:
        self.open: set[Connection] = set()
        self.inside: set[Connection] = set()
        self.on_the_way: set[Connection] = set()
        self.owing: set[Connection] = set()
        self.stops = False
        self.is_relieved = False
        self.overload: Overload | None = None
        self._most_kept_open = most_kept_open
        self._keeps_open = keeps_open
        self._kept_bytes = 0
        self._lock = threading.Lock()  # guards _kept_bytes

    def __repr__(self) -> str:
        return (
            f"<Traffic open={len(self.open)} inside={len(self.inside)} on_the_way={len(self.on_the_way)} "
            f"owing={len(self.owing)} kept_bytes={self._kept_bytes} stops={self.stops}>"
        )

    @property
    def patience_s(self) -> float:
        """How long a client may take to send a request, or read nothing of its answer."""
        return PATIENCE_S if self.overload is None else self.overload.patience_s

    @property
    def max_body_bytes(self) -> int:
        """The longest body that is waited for before a thread takes it; of a longer one the app reads what it likes."""
        return MAX_BODY_BYTES if self.overload is None else self.overload.max_body_bytes

    @property
    def max_kept_bytes(self) -> int:
        """How much of what is not whole may be kept in memory, of all connections together."""
        return max(_LEAST_KEPT_BYTES, _KEPT_BODIES * self.max_body_bytes)

    @property
    def waiting(self) -> int:
        """How many requests wait for a thread."""
        return 0 if self.overload is None else self.overload.waiting(len(self.inside))

    @property
    def accepts_work(self) -> bool:
        """Whether what comes now is served as if the process went on for ever."""
        return self.is_relieved or not self.stops

    def place(self, arrived: bytes | bytearray) -> Place:
        """Which threads a request is for that begins with `arrived`."""
        if self.overload is None:
            return _MAIN
        return self.overload.place(len(self.inside), arrived, is_stopping=not self.accepts_work)

    def closes(self) -> bool:
        """Whether a connection ends after its answer, whatever its client would like."""
        return self.stops or not self._keeps_open or len(self.open) - len(self.inside) > self._most_kept_open

    def enter(self, conn: Connection) -> None:
        """The request of this connection is given to the threads of its place."""
        if conn.counted_bytes:
            self.keep(conn, 0)
        conn.is_accepted = self.accepts_work
        if conn.place.way is not Way.MAIN:
            return
        self.inside.add(conn)
        if conn.is_owing:
            self.owing.add(conn)
        if conn.environ is not None and conn.environ["REQUEST_METHOD"] == "POST":
            self.on_the_way.add(conn)

    def leave(self, conn: Connection) -> None:
        """The request of this connection is served, however that has ended."""
        self.inside.discard(conn)
        self.on_the_way.discard(conn)
        self.owing.discard(conn)

    def keep(self, conn: Connection, total_bytes: int) -> bool:
        """Count `total_bytes` for a connection from now on; False, and it stays as it was, where that is too much."""
        with self._lock:
            kept = self._kept_bytes + total_bytes - conn.counted_bytes
            if kept > self.max_kept_bytes and total_bytes > conn.counted_bytes:
                return False
            self._kept_bytes = kept
            conn.counted_bytes = total_bytes
            return True


_MAIN = Place(Way.MAIN)
