"""How a worker process ends that cannot serve: for good, or to be replaced by a fresh one."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

# Exit status with which a worker tells gunicorn's master to give up instead of starting the next one.
BOOT_ERROR = 3

# Exit status of a worker whose model cannot be loaded while others serve: the master goes on with those.
RELIEF_ERROR = 1


def give_up(worker: Any) -> NoReturn:
    """End a process whose model cannot be loaded, and with it the whole service, unless that can do without it."""
    is_surplus = worker.succession.is_surplus
    if is_surplus:
        worker.log.critical("this process ends, as its model could not be loaded; those before it go on to serve")
    sys.stderr.flush()
    os._exit(RELIEF_ERROR if is_surplus else BOOT_ERROR)


def leave(worker: Any, runtime: Any, reason: str) -> None:
    """End this process: for good when the model cannot be loaded, else to be replaced by a fresh one."""
    if runtime.load_error is not None:
        give_up(worker)
    worker.log.critical("%s; this process ends, and another one takes its place", reason)
    if hasattr(worker, "leave_soon"):
        worker.leave_soon()
    else:
        os.kill(os.getpid(), signal.SIGTERM)
