"""Putting load on a server: how requests are sent off, and when each was due and done.

In a closed loop a number of callers each wait for their answer before they ask again: a slow server is asked less. In
an open loop requests are due at times of their own, and the latency of each counts from then on, also where it could
not be sent because the server, or this program, was behind: what a stall did to those that came during it is seen.
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


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request. Times are seconds from the start of the load. `wrong`: answered, but not as when it was alone."""

    body: int
    due_s: float
    sent_s: float
    done_s: float
    outcome: str
    wrong: bool = False


class Load:
    """Sends bodies off and keeps what became of them in `exchanges`, in the order in which they were done.

    bodies: how many there are; each caller goes through them in turns. *Thread:* one; the requests are greenlets of it.
    """

    def __init__(
        self,
        ask: Ask,
        bodies: int,
        *,
        check: Check = lambda _body, _content: True,
        progress: Progress = lambda _fraction: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._ask = ask
        self._bodies = bodies
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

    def open(self, due_times_s: Iterable[float], duration_s: float, patience_s: float = 60.0) -> None:
        """Send a request off at each of these times, and wait for the answers, at most `patience_s` after the last.

        Those that are still out then end as "unanswered".
        """
        import gevent

        out: dict[Any, tuple[int, float]] = {}
        faults: list[BaseException] = []

        def ended(greenlet: Any) -> None:
            if greenlet.successful():
                del out[greenlet]
            else:
                faults.append(greenlet.exception)

        with self._running(duration_s):
            for number, due_s in enumerate(due_times_s):
                # Also when it is late it lets others go first: their answers are waiting.
                gevent.sleep(max(0.0, due_s - self._now()))
                greenlet = gevent.Greenlet(self._exchange, number % self._bodies, due_s)
                out[greenlet] = (number % self._bodies, due_s)
                greenlet.rawlink(ended)
                greenlet.start()
            gevent.joinall(list(out), timeout=patience_s)
        left = dict(out)
        gevent.killall(list(left))
        if faults:
            raise faults[0]
        now_s = self._now()
        self.exchanges += [Exchange(body, due_s, now_s, now_s, "unanswered") for body, due_s in left.values()]

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
