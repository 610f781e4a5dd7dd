"""What the log says at the start: which settings decide how this server answers."""

from __future__ import annotations

from typing import Any

from service.settings import Settings


def start_summary(settings: Settings, *, threads: int, workers: int) -> tuple[str, dict[str, Any]]:
    """The line of the start and the values beside it, for `service.logs.log_fields`.

    threads, workers: those that gunicorn was really given, as a command line may differ from the settings.
    """
    if settings.model_repository is not None:
        what = f"models of {settings.model_repository}"
    else:
        what = settings.model_path or "the model of the app"
    return f"serving {what}", {
        "model_name": settings.model_name,
        "model_version": settings.model_version,
        "device": settings.device,
        "workers": workers,
        "threads": threads,
        "model_instances": settings.model_instances,
        "native_threads": settings.omp_num_threads,
        "thread_placement": settings.thread_placement.value,
        "max_batch_size": settings.max_batch_size,
        "max_batch_latency_ms": settings.max_batch_latency_ms,
        "max_batch_tokens": settings.max_batch_tokens,
        "batch_policy": settings.batch_policy.value,
        "scheduler": settings.scheduler,
        "max_queue_size": settings.max_queue_size,
        "max_instances": settings.max_instances,
        "max_body_bytes": settings.max_body_bytes,
        "request_timeout_ms": settings.request_timeout_ms,
        "graceful_timeout_s": settings.graceful_timeout_s,
        "has_keys": settings.api_keys is not None,
    }
