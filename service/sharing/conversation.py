"""What both ends of a connection do alike: hear frames until it ends, and send in groups what has gathered."""

from __future__ import annotations

import logging
import queue
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from service.batching.faults import log_error
from service.sharing.frames import Buffer, Frame, FrameError, FrameReader, send

_log = logging.getLogger("jitney")


def hear(connection: socket.socket, take: Callable[[Frame], None], *, given_up: str, failed: str) -> None:
    """Call `take` with each frame until the connection ends, for whatever reason.

    given_up: what the log says, before the reason, of a connection on which no frame comes. failed: what it says, with
    the traceback, when `take` fails.
    """
    frames = FrameReader(connection)
    try:
        while (frame := frames.read()) is not None:
            take(frame)
    except FrameError as error:
        _log.error("%s: %s", given_up, error)
    except OSError:
        pass  # it has ended
    except Exception as error:
        log_error(_log, logging.ERROR, "%s", failed, error=error)


def send_gathered(
    connection: socket.socket,
    outbox: queue.SimpleQueue[Any],
    written: Callable[[list[Any]], list[Buffer]],
    *,
    failed: str,
    before_gathering: Callable[[], object] = lambda: None,
) -> None:
    """Send what comes to `outbox`, as much of it at a time as is there, until None comes or the connection ends.

    written: the bytes of such a group. failed: what the log says when that fails. before_gathering: called when there
    is a first thing, for others to join it. At the end the connection is hung up.
    """
    try:
        while (first := outbox.get()) is not None:
            before_gathering()
            things = [first]
            while not outbox.empty():
                things.append(outbox.get_nowait())
            send(connection, written([thing for thing in things if thing is not None]))
            if None in things:
                return
    except OSError:
        pass  # it has ended, or takes nothing; whoever hears it notices
    except Exception as error:
        log_error(_log, logging.ERROR, "%s", failed, error=error)
    finally:
        hang_up(connection)


def hang_up(connection: socket.socket) -> None:
    """End a connection for both sides, and for every thread that waits for it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
