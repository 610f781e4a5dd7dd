"""Whether there are threads, processes and open files enough for what the settings promise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from service.cpu_threads import POOL_VARIABLES
from service.doctor.findings import Finding, error, ok, warning
from service.doctor.gunicorn_values import GunicornValues
from service.placement.rule import PlacementMode
from service.server.open_files import OTHER_FILES
from service.settings import SPARE_THREADS, ModelSharing, Settings


def check_threads(settings: Settings, values: GunicornValues) -> Iterator[Finding]:
    """HTTP threads against the rows of a batch and of the queue."""
    batch, queue, threads = settings.max_batch_size, settings.max_queue_size, values.threads
    inside, batches = settings.rows_inside, 1 + settings.model_instances
    least = inside + SPARE_THREADS
    if threads < inside:
        found = f"{threads} threads cannot fill batches of {batch} rows while others wait"
        yield warning("THREADS", found, f"THREADS={least}")
    elif threads < least:
        found = f"{threads} threads: {batches} batches of {batch} leave fewer than {SPARE_THREADS} for probes"
        yield warning("THREADS", found, f"THREADS={least}")
    else:
        found = f"{threads} threads: {batches} batches of {batch} rows, and {threads - inside} for the rest"
        yield ok("THREADS", found)
    yield _queue(settings)
    if settings.max_instances > queue:
        found = f"a request may have MAX_INSTANCES={settings.max_instances} rows, but the queue never has room for them"
        yield warning("MAX_INSTANCES", found, f"MAX_INSTANCES={queue}")


def _queue(settings: Settings) -> Finding:
    batch, queue = settings.max_batch_size, settings.max_queue_size
    if queue < batch:
        found = f"MAX_QUEUE_SIZE={queue} is less than MAX_BATCH_SIZE={batch}: no batch is ever full"
        return error("MAX_QUEUE_SIZE", found, f"MAX_QUEUE_SIZE={2 * batch}")
    return ok("MAX_QUEUE_SIZE", f"{queue} rows: room for {queue // batch} batches of {batch}")


def check_workers(values: GunicornValues, sharing: ModelSharing = ModelSharing.COPY) -> Finding:
    """Worker processes, and who owns the model."""
    is_shared = sharing is ModelSharing.ONE
    if values.workers > 1 and is_shared:
        return ok("workers", f"{values.workers} front ends of one process that owns the model")
    if values.workers > 1:
        found = f"{values.workers} processes: each loads a whole model and batches only its own requests"
        return warning("workers", found, "one process (WEB_WORKERS, --workers), or MODEL_SHARING=one")
    told = ", so that MODEL_SHARING=one changes nothing" if is_shared else ""
    return ok("workers", f"one process owns the model{told}")


def check_instances(settings: Settings, cpus: int, workers: int) -> Finding:
    """The worker threads, and the copies of each model, against the CPUs or the one device that they share."""
    instances = settings.model_instances
    if instances == 1:
        return ok("MODEL_INSTANCES", "one worker thread owns the model of a process")
    if settings.device.startswith("cuda"):
        if instances > 2:
            found = f"{instances} worker threads, but while {settings.device} computes one batch, one thread prepares"
            return warning("MODEL_INSTANCES", found, "MODEL_INSTANCES=2")
        found = f"while {settings.device} computes one batch, another thread prepares the next"
        return ok("MODEL_INSTANCES", found)
    owners = 1 if settings.model_sharing is ModelSharing.ONE else workers
    if instances * owners > cpus:
        found = f"{instances * owners} copies of each model that compute at the same time, and {cpus} CPUs"
        return warning("MODEL_INSTANCES", found, f"MODEL_INSTANCES={max(1, cpus // owners)}")
    whose = "the process that owns it" if owners < workers else "a process"
    return ok("MODEL_INSTANCES", f"{instances} copies of each model in {whose}, which needs so many times the memory")


def check_native_threads(environ: Mapping[str, str], cpus: int, workers: int, instances: int = 1) -> Finding:
    """The numeric libraries' threads against the CPUs that the container has. environ: before anything is sized;
    instances: copies of the model that compute at the same time in a process.
    """
    share = max(1, cpus // (workers * instances))
    over = [f"{name}={environ[name]}" for name in POOL_VARIABLES if _number(environ.get(name)) > share]
    if over:
        who = "the process" if workers == 1 else f"each of {workers} processes"
        who = who if instances == 1 else f"each of {instances} copies of a model in {who}"
        found = f"{', '.join(over)}: of {cpus} CPUs {who} has {share}, and more threads slow each other down"
        return warning(
            "native threads", found, " ".join(f"{name}={share}" for name in POOL_VARIABLES if name in environ)
        )
    return ok("native threads", f"not more than {share} each, on {cpus} CPUs")


def check_placement(settings: Settings, cores: int, workers: int) -> Finding:
    """Where threads run. cores: how many a process may use, 0 where the system cannot tell."""
    mode = settings.thread_placement
    if mode is PlacementMode.OFF or cores < 2:
        why = "as THREAD_PLACEMENT says" if mode is PlacementMode.OFF else "there is no choice of cores here"
        return ok("THREAD_PLACEMENT", f"{mode.value}: threads run anywhere, {why}")
    if mode is PlacementMode.PIN and workers > cores:
        found = f"the HTTP threads of {workers} processes are put on one core each, and there are {cores}"
        return warning("THREAD_PLACEMENT", found, f"WEB_WORKERS={cores}, or THREAD_PLACEMENT=auto")
    if mode is PlacementMode.PIN:
        return ok("THREAD_PLACEMENT", f"pin: the HTTP threads of each process run on one of {cores} cores")
    if settings.model_sharing is ModelSharing.ONE and workers > 1:
        told = (
            "auto: a front end keeps to one core unless it decodes pictures, and the owner runs anywhere, see /healthz"
        )
        return ok("THREAD_PLACEMENT", told)
    if settings.model_instances > 1:
        told = f"auto: threads run anywhere, as MODEL_INSTANCES={settings.model_instances} keeps as many cores busy"
        return ok("THREAD_PLACEMENT", told)
    if not settings.warmup:
        found = "auto goes by what warm-up measures, and WARMUP=false: threads run anywhere"
        return warning("THREAD_PLACEMENT", found, "WARMUP=true, or THREAD_PLACEMENT=pin")
    return ok("THREAD_PLACEMENT", f"auto: warm-up finds out whether threads share one of {cores} cores, see /healthz")


def check_open_files(values: GunicornValues, soft_limit: int) -> Finding:
    """The limit of open files against the connections that gunicorn may hold. soft_limit: -1 for none."""
    needed = values.worker_connections + values.threads + OTHER_FILES
    if 0 <= soft_limit < needed:
        found = f"{soft_limit} may be open, {values.worker_connections} connections and the rest need {needed}"
        return warning("open files", found, f"ulimit -n {needed}")
    return ok("open files", f"{'any number' if soft_limit < 0 else soft_limit} may be open, {needed} are needed")


def _number(text: str | None) -> int:
    """Of a list, as OpenMP allows it, the first; 0 for what is no number."""
    first = (text or "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0
