"""Whether the service can predict (ready) and whether its process is worth keeping (live), with reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from loaders.handle import ModelHandle
from service.batching.admission import WorkerState
from service.batching.cost_table import BestSize
from service.batching.faults import text_of
from service.batching.status import BatcherStatus
from service.errors import NotReady, UnknownModel
from service.models.copies import copies_of
from service.models.keeper import KnownVersion, ModelState
from service.runtime import Runtime
from service.settings import Settings

# The directories of an absolute path; its last part, the name, is left.
_ABSOLUTE = re.compile(r"(?<![\w./])/(?:[^\s'\":,/]+/)+")

# A framework's own message can be a page long.
_MAX_CHARS = 400


def readiness(runtime: Runtime) -> tuple[bool, dict[str, Any]]:
    """Ready or not, and the body of `GET /healthz`."""
    status = runtime.status()
    reasons = _reasons(runtime, status)
    model = runtime.model
    body: dict[str, Any] = {
        "status": "ready" if not reasons else "not ready",
        "reasons": reasons,
        "model": None if model is None else _identity(model),
        "queue_depth": 0 if status is None else status.queued,
        "oldest_wait_ms": 0 if status is None else round(status.oldest_wait_s * 1000, 3),
        "worker_alive": status is not None and status.alive,
        "last_batch_age_s": None
        if status is None or status.last_batch_age_s is None
        else round(status.last_batch_age_s, 3),
        "effective_max_batch_size": runtime.settings.max_batch_size
        if status is None
        else status.effective_max_batch_size,
    }
    learnt = runtime.learnt()
    if learnt is not None:
        body["best_batches"] = [_best_batch(best) for best in learnt]
    if status is not None and status.instances > 1:
        body["instances"] = {"count": status.instances, "busy": status.busy_instances}
        if model is not None:
            body["instances"]["copies"] = copies_of(model)
    if runtime.thread_placement is not None:
        body["thread_placement"] = runtime.thread_placement.report()
    return not reasons, body


def _best_batch(best: BestSize) -> dict[str, Any]:
    return {
        "tokens": best.length,
        "rows": best.rows,
        "ms_per_row": round(best.seconds / best.rows * 1000, 6),
        "smallest_rows": best.smallest_rows,
        "smallest_ms_per_row": round(best.smallest_s / best.smallest_rows * 1000, 6),
    }


def _identity(model: ModelHandle) -> dict[str, str]:
    return {"name": model.name, "version": model.version, "format": model.fmt, "device": model.device}


def models(runtime: Runtime, name: str | None = None) -> list[dict[str, Any]]:
    """What is served here: each model (or the one of that name) with its versions, oldest first; plain JSON types."""
    by_name: dict[str, list[KnownVersion]] = {}
    for known in runtime.known_models():
        by_name.setdefault(known.name, []).append(known)
    return [
        {
            "name": found,
            "default_version": next((known.version for known in versions if known.is_default), None),
            "versions": [_version(known, runtime.settings) for known in versions],
        }
        for found, versions in by_name.items()
        if name in (None, found)
    ]


def _version(known: KnownVersion, settings: Settings) -> dict[str, Any]:
    facts: dict[str, Any] = {"version": known.version, "state": known.state}
    if known.handle is not None:
        facts |= {
            "format": known.handle.fmt,
            "device": known.handle.device,
            "input": known.handle.input.kind,
            "warnings": [public_text(warning, settings) for warning in known.handle.warnings],
        }
    if known.reason is not None:
        facts["reason"] = public_text(known.reason, settings)
    return facts


def liveness(runtime: Runtime) -> tuple[bool, dict[str, Any]]:
    """Live or not, and the body of `GET /livez`. Loading, draining and a failed load are live: a restart heals none."""
    status = runtime.status()
    reasons = []
    if status is not None:
        if status.state is WorkerState.DEAD and runtime.load_error is None:
            reasons.append("the inference worker is dead")
        reasons += _stalled(runtime, status)
    return not reasons, {"status": "live" if not reasons else "not live", "reasons": reasons}


def _reasons(runtime: Runtime, status: BatcherStatus | None) -> list[str]:
    """Why a prediction would fail now; empty when it would not."""
    if runtime.draining:
        return ["draining"]
    if runtime.load_error is not None:
        return [f"the model could not be loaded: {public_text(error_line(runtime.load_error), runtime.settings)}"]
    if status is None:
        return ["not started"]
    if status.state in (WorkerState.NEW, WorkerState.STARTING):
        return ["loading" if status.cause is None else f"loading: {text_of(status.cause)}"]
    if status.state is not WorkerState.RUNNING or not status.alive:
        return ["the inference worker is dead"]
    return _without_model(runtime) + _stalled(runtime, status) + _held_up(runtime, status)


def _without_model(runtime: Runtime) -> list[str]:
    """Nothing is there to answer a request that names no model, or none at all."""
    if runtime.model is not None:
        return []
    if runtime.default_name is None:
        usable = (ModelState.LOADED, ModelState.AVAILABLE)
        return [] if any(one.state in usable for one in runtime.known_models()) else ["no model is left to answer"]
    try:
        runtime.check(None, None, was_accepted=True)
    except (UnknownModel, NotReady) as error:
        return [f"the default model cannot answer: {error}"]
    return []


def _held_up(runtime: Runtime, status: BatcherStatus) -> list[str]:
    """A load that takes long keeps everyone waiting, but a restart would only begin it anew: not ready, and live."""
    limit_ms = runtime.settings.stall_limit_ms
    if status.job_s * 1000 <= limit_ms:
        return []
    busy = f"the inference worker has been loading or freeing a model for {status.job_s:.1f} s"
    return [f"{busy}, longer than {limit_ms:.0f} ms (STALL_LIMIT_MS)"]


def _stalled(runtime: Runtime, status: BatcherStatus) -> list[str]:
    limit_ms = runtime.settings.stall_limit_ms
    if status.busy_s * 1000 <= limit_ms:
        return []
    return [f"a batch has been running for {status.busy_s:.1f} s, longer than {limit_ms:.0f} ms (STALL_LIMIT_MS)"]


def error_line(error: BaseException) -> str:
    """A load error in one line."""
    return " ".join(f"{type(error).__name__}: {text_of(error)}".split())


def public_text(message: str, settings: Settings) -> str:
    """A message without the directories of this machine, which are nobody's business outside."""
    # Those of the models first: their names may hold blanks, at which the search for other paths ends.
    homes = [Path(path).parent for path in (settings.model_path,) if path]
    homes += [Path(path) for path in (settings.model_repository,) if path]
    for directory in {str(form) for home in homes for form in (home, home.absolute(), home.resolve())}:
        if directory not in (".", "/"):
            message = message.replace(directory + "/", "")
    message = _ABSOLUTE.sub("", message)
    return message if len(message) <= _MAX_CHARS else message[: _MAX_CHARS - 1] + "…"
