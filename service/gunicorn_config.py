"""Gunicorn's configuration as a module: `gunicorn.conf.py` and `jitney serve` both use it.

It is read in gunicorn's master before any numeric library is loaded, and it must not load one.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

from loaders.devices import cpu_count
from service.cpu_threads import size_thread_pools
from service.settings import SettingsError, load_settings, read_dotenv

# Longer than nginx keeps idle upstream connections (60 s): the side that closes first must be the client's.
KEEPALIVE_S = 75

# Exit status with which a worker tells gunicorn's master to give up instead of starting the next one.
BOOT_ERROR = 3

read_dotenv()
try:
    _settings = load_settings()
except SettingsError as error:
    sys.exit(f"jitney: wrong settings\n{error}")
size_thread_pools(cpu_count())
# Read when prometheus_client is imported; the series would double what a scrape carries.
os.environ.setdefault("PROMETHEUS_DISABLE_CREATED_SERIES", "true")

bind = _settings.bind
workers = 1
worker_class = "service.gunicorn_worker.Worker"
threads = _settings.http_threads
worker_connections = 1000 + threads
keepalive = KEEPALIVE_S
graceful_timeout = _settings.graceful_timeout_s
# Watches gunicorn's own loop only; a model that hangs is noticed by the probes, which know about batches.
timeout = 60
# Neither threads nor CUDA survive a fork: the model is loaded after it.
preload_app = False
# A worker that retires would leave a gap as long as the model takes to load.
max_requests = 0
loglevel = _settings.log_level
accesslog = None
# The socket is shared by all gunicorn servers of a user unless it is off.
control_socket_disable = True

logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"level": _settings.log_level.upper(), "handlers": ["stderr"]},
    "loggers": {
        "gunicorn.error": {"level": _settings.log_level.upper(), "handlers": ["stderr"], "propagate": False},
    },
}


def on_starting(server: Any) -> None:
    """Check what a command line may have changed behind the settings' back."""
    if server.cfg.preload_app:
        sys.exit("jitney: preload_app cannot work: neither threads nor CUDA survive a fork; start without --preload")
    if server.cfg.worker_class_str not in (worker_class, "gthread"):
        sys.exit(f"jitney: worker class {server.cfg.worker_class_str!r} cannot work here; leave it out, or use gthread")
    if server.cfg.threads < 2 * _settings.max_batch_size:
        server.log.warning(
            "%d threads cannot fill batches of %d rows while others wait: set THREADS to at least %d",
            *(server.cfg.threads, _settings.max_batch_size, 2 * _settings.max_batch_size + 8),
        )


def post_worker_init(worker: Any) -> None:
    """Start the model in this worker process, and let SIGTERM be known at once."""
    runtime = _runtime(worker)
    if runtime is None:
        return
    runtime.on_fatal = lambda reason: _leave(worker, runtime, reason)
    previous = signal.getsignal(signal.SIGTERM)

    def drain(number: int, frame: FrameType | None) -> None:
        # In this order a request that finds the service draining is answered on a connection that closes.
        if callable(previous):
            previous(number, frame)
        runtime.begin_drain()

    signal.signal(signal.SIGTERM, drain)
    signal.siginterrupt(signal.SIGTERM, False)
    runtime.start()


def worker_exit(_server: Any, worker: Any) -> None:
    """The requests are done: stop the worker thread."""
    runtime = _runtime(worker)
    if runtime is not None:
        runtime.close(timeout_s=2.0)


def _runtime(worker: Any) -> Any:
    return getattr(worker.wsgi, "extensions", {}).get("jitney")


def _leave(worker: Any, runtime: Any, reason: str) -> None:
    """End this process: for good when the model cannot be loaded, else to be replaced by a fresh one."""
    if runtime.load_error is not None:
        sys.stderr.flush()
        os._exit(BOOT_ERROR)
    worker.log.critical("%s; this process ends, and another one takes its place", reason)
    os.kill(os.getpid(), signal.SIGTERM)
