"""A front end's connection to the owner: one thread sends what has gathered, one hears what comes."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from service.batching.policy import nobody
from service.errors import JitneyError, PredictionFailed
from service.sharing.asking import Asked, Lane, ask, cancel
from service.sharing.conversation import hang_up, hear, send_gathered
from service.sharing.frames import Buffer, Frame, FrameError
from service.sharing.values import Unsendable

# Rows beyond this go into the next frame, so that the owner has something to do while they are packed.
MAX_ROWS_PER_FRAME = 1024


class Link:
    """One connection, until it ends. `on_refused(number, error)`: a request that could not be sent. `on_the_way()`: how
    many requests this process has received that have not come here yet.

    *Thread:* `ask`, `cancel` and `close` may be called from any; `hear` on one, which it keeps.
    """

    def __init__(
        self,
        connection: socket.socket,
        on_refused: Callable[[int, JitneyError], None],
        on_the_way: Callable[[], int] = nobody,
    ) -> None:
        self._connection = connection
        self._on_refused = on_refused
        self._on_the_way = on_the_way
        # Of (lane, request), numbers to cancel, and None at the end. Bounded by the threads that wait for an answer.
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send, name="jitney-link-sender", daemon=True)
        self._sender.start()

    def ask(self, lane: Lane, request: Asked) -> None:
        """Send a request with whatever else is to be sent."""
        self._outbox.put((lane, request))

    def cancel(self, number: int) -> None:
        """Nobody waits for this request any longer."""
        self._outbox.put(number)

    def hear(self, take: Callable[[Frame], None]) -> None:
        """Call `take` with each frame until the connection ends, for whatever reason."""
        try:
            hear(
                self._connection,
                take,
                given_up="the connection to the process that owns the model is given up",
                failed="what came from the process that owns the model failed",
            )
        finally:
            self.close()
            self._sender.join()
            self._connection.close()

    def close(self) -> None:
        """End the connection; `hear` returns."""
        self._outbox.put(None)
        hang_up(self._connection)

    def _send(self) -> None:
        send_gathered(
            self._connection,
            self._outbox,
            self._frames,
            failed="nothing more can be sent to the process that owns the model",
            # Others that are about to ask do so first, and what they ask for goes along.
            before_gathering=os.sched_yield,
        )

    def _frames(self, things: Sequence[Any]) -> list[Buffer]:
        """A frame for each lane, then one for those that leave: a request cannot be withdrawn before it was made."""
        by_lane: dict[Lane, list[Asked]] = {}
        gone: list[int] = []
        for thing in things:
            if isinstance(thing, tuple):
                by_lane.setdefault(thing[0], []).append(thing[1])
            else:
                gone.append(thing)
        buffers: list[Buffer] = []
        for lane, requests in by_lane.items():
            for some in _portions(requests):
                buffers += self._asked(lane, some)
        return buffers + cancel(gone) if gone else buffers

    def _asked(self, lane: Lane, requests: Sequence[Asked]) -> list[Buffer]:
        try:
            return ask(lane, requests, self._on_the_way())
        except (Unsendable, FrameError) as error:
            if len(requests) > 1:
                return [buffer for request in requests for buffer in self._asked(lane, [request])]
            fault = PredictionFailed("the rows cannot be sent to the process that owns the model (MODEL_SHARING)")
            fault.__cause__ = error
            self._on_refused(requests[0].number, fault)
            return []


def _portions(requests: Sequence[Asked]) -> list[list[Asked]]:
    portions: list[list[Asked]] = []
    rows = MAX_ROWS_PER_FRAME
    for request in requests:
        if rows + len(request.rows) > MAX_ROWS_PER_FRAME:
            portions.append([])
            rows = 0
        portions[-1].append(request)
        rows += len(request.rows)
    return portions
