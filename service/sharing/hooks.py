"""What `MODEL_SHARING=one` adds to gunicorn's hooks, in its master and in the worker processes that this makes.

Loads nothing that a master must not load: what an owner or a front end needs is imported there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from service.freed_memory import keep_freed_memory
from service.runtimes import runtimes
from service.settings import ModelSharing
from service.sharing.owners import Owners
from service.sharing.place import Place

# What has the batches of a runtime that take too long seen to, and tells of it in a log.
Watch = Callable[[Any, Any], None]


def shares_model(server: Any, sharing: ModelSharing) -> bool:
    """Whether one process is to own the model, and the worker processes are its front ends."""
    return server.cfg.workers > 1 and sharing is ModelSharing.ONE


def announce(server: Any) -> None:
    """The master starts: say what is shared, or end where that cannot be."""
    if sys.platform != "linux":
        sys.exit("jitney: MODEL_SHARING=one needs Linux; MODEL_SHARING=copy does not")
    server.log.info(
        "%d worker processes ask one process, which owns the model and batches for all of them", server.cfg.workers
    )


def begin(server: Any, watch: Watch) -> None:
    """The master listens: start the first owner."""
    server.owners = Owners(server, partial(_own, server, watch))


def renew(server: Any) -> None:
    """The master has read its configuration anew: start the next owner, if there are any."""
    if hasattr(server, "owners"):
        server.owners.renew()


def assign(server: Any, worker: Any) -> None:
    """The master is about to make a worker process: tell it of its owner, if there are any."""
    if hasattr(server, "owners"):
        server.owners.assign(worker)


def end(server: Any) -> None:
    """No worker process runs any more, and so no owner is to."""
    if hasattr(server, "owners"):
        server.owners.end()


def become_front_end(worker: Any, here: list[Any], give_up: Callable[[Any], NoReturn]) -> None:
    """Have the owner that was assigned to this worker process do what its own worker thread would.

    here: its runtimes. give_up(worker): ends the process where there is more than one of them.
    """
    from service.sharing.shared_model import SharedModel

    worker.owner.listener.close()  # the master's; connections that wait there must end with it
    if len(here) != 1:
        worker.log.critical("MODEL_SHARING=one serves an app with one Jitney, and this one has %d", len(here))
        give_up(worker)
    here[0].share(lambda runtime: SharedModel(runtime, worker.owner.address, worker.slot))


def _own(server: Any, watch: Watch, place: Place, master_ends: int) -> bool:
    """The life of the process that owns the model. *Thread:* its main thread."""
    from service.sharing.owner import own

    keep_freed_memory()
    return own(
        server.app.wsgi,
        runtimes,
        place,
        master_ends,
        server.cfg.graceful_timeout,
        watch=lambda runtime: watch(runtime, server.log),
    )
