"""Gunicorn's configuration as a module: `gunicorn.conf.py` and `jitney serve` both use it.

It is read in gunicorn's master before any numeric library is loaded, and it must not load one.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from loaders.devices import cpu_count
from service.cpu_threads import POOL_VARIABLES, size_thread_pools
from service.freed_memory import keep_freed_memory
from service.logs import log_config, log_fields
from service.metrics import directory
from service.runtimes import runtimes
from service.server import balance, open_files
from service.server.addresses import refuse_taken
from service.server.failed_starts import FailedStarts
from service.server.last_resort import give_up, leave
from service.server.overload import Overload
from service.server.repeated_stop import RepeatedStop
from service.server.stalls import watch, watch_no_more
from service.server.start_summary import start_summary
from service.server.succession import Relief, Succession, place
from service.server.unread_lines import UnreadLines
from service.server.worker_choice import OWN, STOCK, choose
from service.settings import SPARE_THREADS, ModelSharing, SettingsError, load_settings, read_dotenv
from service.sharing import hooks as sharing

# Longer than nginx keeps idle upstream connections (60 s): the side that closes first must be the client's.
KEEPALIVE_S = 75

# How long the worker thread may take to stop when all requests are done, seconds.
CLOSE_S = 2.0

_environ_then = dict(os.environ)
_unread_lines = UnreadLines()
_doubts = read_dotenv()
try:
    _settings = load_settings()
except SettingsError as error:
    sys.exit("\n".join(["jitney: wrong settings", str(error), *_doubts]))
_sized_here = [variable for variable in POOL_VARIABLES if variable not in os.environ]
size_thread_pools(cpu_count(), _settings.model_instances)
# Read when prometheus_client is imported; the series would double what a scrape carries.
os.environ.setdefault("PROMETHEUS_DISABLE_CREATED_SERIES", "true")

bind = _settings.bind
workers = _settings.web_workers
# Or gunicorn's own, where TLS, HTTP/2 or another thing is configured that this one does not do: see on_starting.
worker_class = OWN
threads = _settings.http_threads
# Those that predict, those that wait, and as many more that are kept open or are just being refused.
worker_connections = threads + _settings.max_queue_size + 1000
keepalive = KEEPALIVE_S
graceful_timeout = _settings.graceful_timeout_s
# Watches gunicorn's own loop only; a model that hangs is noticed by the probes, which know about batches.
timeout = 60
# Neither threads nor CUDA survive a fork: the model is loaded after it.
preload_app = False
# The master hears of a worker that retires by itself only at its end: a gap as long as the model takes to load.
max_requests = 0
loglevel = _settings.log_level
accesslog = None
# No header may say under which prefix the service is mounted; the environment variable SCRIPT_NAME does.
forwarder_headers = ""
# The socket is shared by all gunicorn servers of a user unless it is off.
control_socket_disable = True

# One line for each request is `service.logs`' own.
logger_class = "service.server.logger.QuietLogger"
logconfig_dict = log_config(_settings.log_format, _settings.log_level)


def on_starting(server: Any) -> None:
    """Check what a command line may have changed behind the settings' back, and whether the address is free."""
    logging.captureWarnings(True)  # else a library's warning would stand among the lines, and be none
    for doubt in _doubts:
        server.log.warning("%s", doubt)
    refuse_taken(server.cfg.address)
    if server.cfg.preload_app:
        sys.exit("jitney: preload_app cannot work: neither threads nor CUDA survive a fork; start without --preload")
    if server.cfg.worker_class_str not in (OWN, STOCK):
        sys.exit(f"jitney: worker class {server.cfg.worker_class_str!r} cannot work here; leave it out, or use gthread")
    choose(server)
    open_files.make_suffice(server)
    if server.cfg.threads < _settings.rows_inside:
        server.log.warning(
            "%d threads cannot fill batches of %d rows while others wait: set THREADS to at least %d",
            *(server.cfg.threads, _settings.max_batch_size, _settings.rows_inside + SPARE_THREADS),
        )
    if server.cfg.workers > 1:
        _prepare_several(server)
    else:
        _prepare_one(server)
    message, fields = start_summary(_settings, threads=server.cfg.threads, workers=server.cfg.workers)
    log_fields(logging.getLogger("jitney"), logging.INFO, message, fields)


def on_reload(server: Any) -> None:
    """SIGHUP: gunicorn has taken its configuration anew, which this module, read once in a process, has not changed."""
    server.log.info("reload: code and models are read anew, settings are not: they stay those of the start")
    if names := _unread_lines.names():
        told = "reload: lines of .env have changed and count from the next start on, or after SIGUSR2: %s"
        server.log.warning(told, ", ".join(names))
    # For the master of a SIGUSR2: else the old lines of .env would look like variables, which win over the new ones.
    server.cfg.env_orig = dict(_environ_then)
    choose(server)
    open_files.make_suffice(server)
    sharing.renew(server)


def when_ready(server: Any) -> None:
    """The master listens, and has made no process yet."""
    Relief(server)
    FailedStarts(server)
    RepeatedStop(server)
    _make_replaceable(server)
    balance.begin(server)
    if sharing.shares_model(server, _settings.model_sharing):
        sharing.begin(server, watch)


def _make_replaceable(server: Any) -> None:
    """On SIGUSR2 gunicorn starts anew the file that was run; after `python -m` its neighbours would hide `http`."""
    python, program, *arguments = server.START_CTX["args"]
    if Path(program).name == "__main__.py":
        server.START_CTX["args"] = [python, "-m", "gunicorn", *arguments]


def _prepare_one(server: Any) -> None:
    """Say what has no meaning for a single worker process."""
    if directory.count_alone():
        server.log.info("one worker process: %s is not needed, and left alone", directory.VARIABLE)
    if _settings.model_sharing is ModelSharing.ONE:
        server.log.info("one worker process: MODEL_SHARING=one changes nothing, as it owns the model alone")


def _prepare_several(server: Any) -> None:
    """Have the worker processes count together and share the CPUs, and say what they do not share."""
    if sharing.shares_model(server, _settings.model_sharing):
        sharing.announce(server)
    else:
        for variable in _sized_here:
            os.environ[variable] = str(max(1, cpu_count() // (server.cfg.workers * _settings.model_instances)))
        server.log.warning(
            "%d worker processes: each loads a whole model (so many times the memory, of the device too), batches its "
            "own requests and has %s native threads; /healthz speaks of the process that answers, /metrics of all",
            *(server.cfg.workers, os.environ["OMP_NUM_THREADS"]),
        )
    try:
        # Where GUNICORN_PID is set, another master is being replaced, and its worker processes still count.
        server.metrics_directory = directory.count_together(
            owner=(server.cfg.uid, server.cfg.gid), is_upgrade="GUNICORN_PID" in os.environ
        )
    except directory.NoDirectory as fault:
        sys.exit(f"jitney: {fault}")


def nworkers_changed(server: Any, new: int, old: int | None) -> None:
    """Called at the start, and when a signal asks for more processes or fewer."""
    if old is not None and new > 1 and not directory.counts_together():
        server.log.warning("each of %d processes counts for itself; start with WEB_WORKERS=%d", new, new)


def pre_fork(server: Any, worker: Any) -> None:
    """The master is about to make a worker process. *Thread:* the master's."""
    worker.succession = place(server)
    balance.assign(server, worker)
    taken = {other.turn for other in server.WORKERS.values()}
    worker.turn = next(turn for turn in itertools.count() if turn not in taken)
    sharing.assign(server, worker)


def post_fork(_server: Any, _worker: Any) -> None:
    """This is a worker process, of one thread so far."""
    keep_freed_memory()


def child_exit(_server: Any, worker: Any) -> None:
    """A worker process has ended, in whatever way. *Thread:* the master's."""
    balance.forget(worker)
    if directory.counts_together():
        directory.forget_process(worker.pid)


def on_exit(server: Any) -> None:
    """No worker process runs any more."""
    sharing.end(server)
    own = getattr(server, "metrics_directory", None)
    if own is not None:
        directory.remove(own)


def post_worker_init(worker: Any) -> None:
    """Start the model in this worker process, and let SIGTERM be known at once."""
    here = runtimes()
    if not here:
        worker.succession.begin()
        worker.log.warning("this app has no Jitney: nothing is batched, and SIGTERM is left to gunicorn alone")
        return
    previous = signal.getsignal(signal.SIGTERM)

    def drain(number: int, frame: FrameType | None) -> None:
        # In this order a request that finds the service draining is answered on a connection that closes.
        if callable(previous):
            previous(number, frame)
        if getattr(worker, "is_relieved", False):
            return  # the service is as ready as before, and who asks on a kept connection is to hear that
        for runtime in here:
            runtime.begin_drain()

    signal.signal(signal.SIGTERM, drain)
    signal.siginterrupt(signal.SIGTERM, False)
    for runtime in here:
        runtime.on_fatal = partial(leave, worker, runtime)
        if hasattr(worker, "on_the_way"):
            runtime.on_the_way = lambda: worker.on_the_way
    if hasattr(worker, "owner"):
        sharing.become_front_end(worker, here, give_up)
    else:
        _place_threads(worker, here)
    placement = here[0].thread_placement  # the same for all
    if placement is not None:
        worker.shares_core = lambda: placement.on_one_core
    for runtime in here:
        runtime.start()
        if not runtime.is_shared:
            watch(runtime, worker.log)
    if hasattr(worker, "limit_waiting"):
        _limit_waiting(worker, here)
    threading.Thread(target=_take_over, args=(worker, here), name="jitney-succession", daemon=True).start()


def _place_threads(worker: Any, here: list[Any]) -> None:
    """Have this process's threads run where the models' cost puts them; it is known who they are in our own worker."""
    if not hasattr(worker, "on_thread_start"):
        return
    # Not at the top: the master must not load NumPy.
    from service.models.placing import PlacedModels
    from service.placement.threads import Placement

    placement = Placement(
        _settings.thread_placement,
        # Services that share a machine, too, begin at different cores.
        turn=os.getppid() + worker.turn,
        has_other_work=not all(runtime.serves_alone for runtime in here),
        instances=_settings.model_instances,
    )
    placement.http_thread_starts()  # this one hands the requests out
    worker.on_thread_start = placement.http_thread_starts
    for runtime in here:
        runtime.placed = PlacedModels(placement, runtime.settings, runtime)
        runtime.thread_placement = runtime.placed


def _take_over(worker: Any, here: list[Any]) -> None:
    """Wait until every model is loaded, and serve; end where one cannot be, and others can go on without it."""
    succession: Succession = worker.succession
    for runtime in here:
        runtime.batcher().wait_started(math.inf)
        if runtime.is_dead and succession.is_surplus:
            if not runtime.settings.exit_on_load_error:  # else its end is on the way
                give_up(worker)
            return
    succession.begin()
    if hasattr(worker, "accept_now"):
        worker.accept_now()


def _limit_waiting(worker: Any, here: list[Any]) -> None:
    """Have requests that wait for a thread count as the rows that wait for a batch do, and be seen like them."""
    overload = Overload(
        threads=worker.cfg.threads,
        limit=max(runtime.settings.max_queue_size for runtime in here),
        queued_rows=lambda: sum(runtime.batcher().queued for runtime in here),
        patience_s=max(runtime.settings.request_timeout_ms for runtime in here) / 1000,
        max_body_bytes=max(runtime.settings.max_body_bytes for runtime in here),
    )
    worker.limit_waiting(overload)
    # Not at the top: the master must not load the client library.
    from service.metrics.families import counts_are_shared
    from service.metrics.waiting import show_waiting

    # Where counts are shared, one count is in all the pages already.
    worker.count_unseen_with([runtime.count_unseen for runtime in (here[:1] if counts_are_shared() else here)])
    for runtime in here:
        show_waiting(runtime.metrics.registry, lambda: worker.waiting)


def worker_exit(_server: Any, worker: Any) -> None:
    """The requests are done: stop the worker thread."""
    # gunicorn's master repeats itself as long as the process is there, and nothing is left that could end sooner.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watch_no_more()
    have_ended = [runtime.close(timeout_s=CLOSE_S) for runtime in runtimes()]
    open_connections = getattr(worker, "nr_conns", 0)
    if open_connections or not all(have_ended):
        # A thread is stuck, and the interpreter, or a library that the model is in, would wait for it for ever.
        worker.log.warning(
            "%d connections were still open at the end, and %d models still running",
            *(open_connections, have_ended.count(False)),
        )
        sys.stderr.flush()
        os._exit(0)
