"""Putting load on a server: how requests are sent off, and when each was due and done.

In a closed loop a number of callers each wait for their answer before they ask again: a slow server is asked less. In
an open loop requests are due at times of their own, and the latency of each counts from then on, also where it could
not be sent because the server, or this program, was behind: what a stall did to those that came during it is seen. No
more are out at a time than there are connections: those behind them are late, and are told to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service.bench.client import Answer

Ask = Callable[[int], Answer]
"""Sends the body at this position."""

Check = Callable[[int, bytes], bool]
"""Whether this is a right answer to the body at that position."""

Progress = Callable[[float], None]

_PROGRESS_EVERY_S = 0.2


UNANSWERED = "unanswered"
NOT_SENT = "not sent"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request. Times are seconds from the start of the load. `wrong`: answered, but not as when it was alone.

    outcome: an answer's, UNANSWERED, or NOT_SENT; then `sent_s` is when it was given up.
    """

    body: int
    due_s: float
    sent_s: float
    done_s: float
    outcome: str
    wrong: bool = False


class Load:
    """Sends bodies off and keeps what became of them in `exchanges`, in the order in which they were done.

    bodies: how many there are; each caller goes through them in turns. connections: of an open loop, requests that are
    out at a time. patience_s: how long after it was due a request may still be sent, and how long after the last one an
    answer may come. *Thread:* one; the requests are greenlets of it.
    """

    def __init__(
        self,
        ask: Ask,
        bodies: int,
        *,
        connections: int = 512,
        patience_s: float = 60.0,
        check: Check = lambda _body, _content: True,
        progress: Progress = lambda _fraction: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._ask = ask
        self._bodies = bodies
        self._connections = connections
        self._patience_s = patience_s
        self._check = check
        self._progress = progress
        self._clock = clock
        self._began = 0.0
        self.exchanges: list[Exchange] = []

    def closed(self, callers: int, duration_s: float) -> None:
        """Have `callers` ask one request after the other until `duration_s` is over, and wait for the last answers."""
        import gevent

        def caller(first: int) -> None:
            body = first % self._bodies
            while (due_s := self._now()) < duration_s:
                self._exchange(body, due_s)
                body = (body + 1) % self._bodies

        # Far apart, so that not everybody asks the same at once.
        step = max(1, self._bodies // callers)
        with self._running(duration_s):
            gevent.joinall([gevent.spawn(caller, number * step) for number in range(callers)], raise_error=True)

    def open(self, due_times_s: Iterable[float], duration_s: float) -> None:
        """Send a request off at each of these times, and wait for the answers.

        However the server behaves, it ends at most twice the patience after the last time.
        """
        import gevent

        out = _Out(self._connections)
        with self._running(duration_s):
            for number, due_s in enumerate(due_times_s):
                # Also when it is late it lets others go first: their answers are waiting.
                gevent.sleep(max(0.0, due_s - self._now()))
                body = number % self._bodies
                left_s = due_s + self._patience_s - self._now()
                if left_s > 0 and out.wait_for_place(left_s):
                    out.start(gevent.Greenlet(self._exchange, body, due_s), (body, due_s, self._now()))
                else:
                    now_s = self._now()
                    self.exchanges.append(Exchange(body, due_s, now_s, now_s, NOT_SENT))
            left = out.end(self._patience_s)
        now_s = self._now()
        self.exchanges += [Exchange(body, due_s, sent_s, now_s, UNANSWERED) for body, due_s, sent_s in left]

    def _exchange(self, body: int, due_s: float) -> None:
        sent_s = self._now()
        outcome, content = self._ask(body)
        done_s = self._now()
        wrong = outcome == "200" and not self._check(body, content)
        self.exchanges.append(Exchange(body, due_s, sent_s, done_s, outcome, wrong))

    def _now(self) -> float:
        return self._clock() - self._began

    @contextmanager
    def _running(self, duration_s: float) -> Iterator[None]:
        """From the start of a load, tell the progress beside it."""
        import gevent

        self._began = self._clock()
        ticker = gevent.spawn(self._tick, duration_s)
        try:
            yield
        finally:
            ticker.kill()

    def _tick(self, duration_s: float) -> None:
        import gevent

        while True:
            self._progress(min(1.0, self._now() / duration_s))
            gevent.sleep(_PROGRESS_EVERY_S)


class _Out:
    """The requests that are out: at most as many as there are connections."""

    def __init__(self, connections: int) -> None:
        from gevent.lock import Semaphore

        self._places = Semaphore(connections)
        self._running: dict[Any, tuple[int, float, float]] = {}
        self._faults: list[BaseException] = []

    def wait_for_place(self, limit_s: float) -> bool:
        """Take the next free place; False where there was none in time."""
        taken: bool = self._places.acquire(timeout=limit_s)
        return taken

    def start(self, greenlet: Any, what: tuple[int, float, float]) -> None:
        """Send off `what`, a body and the times when it was due and sent, in the place that was taken."""
        self._running[greenlet] = what
        greenlet.rawlink(self._ended)
        greenlet.start()

    def end(self, patience_s: float) -> list[tuple[int, float, float]]:
        """Wait for those that are out; what is then left. Raises what went wrong in any of them."""
        import gevent

        gevent.joinall(list(self._running), timeout=patience_s)
        left = dict(self._running)
        gevent.killall(list(left))
        if self._faults:
            raise self._faults[0]
        return list(left.values())

    def _ended(self, greenlet: Any) -> None:
        self._places.release()
        if greenlet.successful():
            del self._running[greenlet]
        else:
            self._faults.append(greenlet.exception)
