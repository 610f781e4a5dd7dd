"""All checks, in the order of the report."""

from __future__ import annotations

import os
import re
import resource
import runpy
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loaders.devices import cpu_count
from loaders.errors import ModelError
from service.batching.schedulers import NoScheduler, make_scheduler
from service.doctor import installed
from service.doctor.findings import Finding, error, ok, warning
from service.doctor.gunicorn_values import GunicornValues, WrongOptions, check_gunicorn, gunicorn_values
from service.doctor.models import look_at_models
from service.doctor.nginx import check_nginx
from service.doctor.threads import (
    check_instances,
    check_native_threads,
    check_open_files,
    check_placement,
    check_threads,
    check_workers,
)
from service.doctor.timeouts import check_timeouts
from service.doctor.tracing import check_tracing
from service.last_words import last_words
from service.placement.cores import allowed_cores
from service.settings import Settings, SettingsError, TracingMode, load_settings, misspelt_settings, read_dotenv

_GUNICORN_CONFIG = "service.gunicorn_config"


def examine(
    gunicorn_args: Sequence[str] = (), *, nginx: Path | None = None, has_to_load: bool = False
) -> Iterator[Finding]:
    """Look at everything that can be seen without starting the service.

    gunicorn_args: as they follow `jitney serve --`. nginx: its configuration file. has_to_load: load the model too.
    The process's environment is completed from a .env file and by gunicorn's configuration, as it is by a start.
    """
    before = dict(os.environ)
    for doubt in read_dotenv():
        yield warning(".env", doubt, "correct its name, or remove the line")
    for name, right in misspelt_settings(before).items():
        yield warning("environment", f"{name} is no setting; did you mean {right}?", f"call it {right}, or unset it")
    try:
        settings = load_settings()
    except SettingsError as faults:
        for line in str(faults).splitlines():
            yield error("settings", line, _allowed(line))
        yield warning(
            "the rest",
            "threads, times, nginx and models: not looked at while a setting is wrong",
            "mend it, and run this again",
        )
        yield from _installation()
        return
    yield ok("settings", "all have a value that is allowed")
    # Run and not imported: it is made anew from the settings of now, as gunicorn will make it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # it may have been imported before: it is read anew
        config = runpy.run_module(_GUNICORN_CONFIG)
    try:
        values = gunicorn_values(config, gunicorn_args, before)
    except WrongOptions as fault:
        yield error("gunicorn options", str(fault), "gunicorn --help")
        values = gunicorn_values(config, (), {})
    yield from check_gunicorn(values, config["worker_class"], before)
    yield from _resources(settings, values, {**before, **_from_settings(settings)})
    if nginx is not None:
        yield from check_nginx(nginx, settings, values)
    yield from _models(settings)
    yield from _installation()
    if has_to_load:
        yield from _loaded(settings)


def _allowed(fault: str) -> str:
    """A value that the setting of a message could have: the one that the message tells, or the default."""
    name = fault.partition("=")[0]
    if told := re.search(r"set it to at least (\d+)", fault):
        return f"{name}={told[1]}"
    field = Settings.model_fields.get(name.lower())
    if field is None:
        return "as the message says"
    default = field.default
    return f"unset {name}" if default is None else f"{name}={str(default).lower()}"


def _resources(settings: Settings, values: GunicornValues, environ: dict[str, str]) -> Iterator[Finding]:
    yield from check_threads(settings, values)
    yield check_workers(values, settings.model_sharing)
    yield check_instances(settings, cpu_count(), values.workers)
    yield check_native_threads(environ, cpu_count(), values.workers, settings.model_instances)
    yield check_placement(settings, len(allowed_cores()), values.workers)
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield check_open_files(values, -1 if soft_limit == resource.RLIM_INFINITY else soft_limit)
    yield from check_timeouts(settings, values)
    yield _scheduler(settings.scheduler)
    yield from check_tracing(os.environ, is_on=settings.tracing is TracingMode.OTEL)


def _scheduler(name: str) -> Finding:
    try:
        make_scheduler(name)
    except NoScheduler as fault:
        # The program that is served may register it.
        return warning("SCHEDULER", str(fault), "SCHEDULER=fifo")
    return ok("SCHEDULER", name)


def _from_settings(settings: Settings) -> dict[str, str]:
    """A line of a .env file counts as much as a variable."""
    asked = settings.omp_num_threads
    return {} if asked is None else {"OMP_NUM_THREADS": str(asked)}


def _models(settings: Settings) -> Iterator[Finding]:
    models = look_at_models(settings)
    for model in models:
        yield from model.findings
    formats = sorted({model.fmt for model in models if model.fmt is not None})
    for fmt in formats:
        has_pictures = any(model.has_pictures for model in models if model.fmt == fmt)
        yield from installed.check_format(fmt, has_pictures=has_pictures)
    cards, torch_cuda = installed.cuda_cards(os.environ), installed.torch_cuda_version(installed.directory_of("torch"))
    has_onnx_gpu = installed.is_installed("onnxruntime-gpu")
    of_formats: list[str | None] = [*formats] or [None]
    for each in of_formats:
        yield installed.check_device(settings.device, each, cards, torch_cuda, has_onnx_gpu)


def _installation() -> Iterator[Finding]:
    if (wheels := installed.check_onnx_wheels()) is not None:
        yield wheels
    yield installed.check_http_parser()
    # gunicorn puts the working directory first.
    directories = [Path.cwd(), *(Path(entry) for entry in sys.path if entry)]
    yield from installed.check_import_names(directories, Path(__file__).parents[2])


def _loaded(settings: Settings) -> Iterator[Finding]:
    from service.doctor.copies import check_copies
    from service.models.loading import load_configured_model

    if settings.model_path is None:
        yield ok("load", "only a model at MODEL_PATH is loaded here; jitney inspect loads any other")
        return
    began = time.monotonic()
    try:
        handle: Any = load_configured_model(settings)
    except ModelError as fault:
        yield error("load", str(fault), f"jitney inspect {settings.model_path} when it is changed")
        return
    try:
        yield ok("load", f"{handle.name} on {handle.device}, in {time.monotonic() - began:.1f} s")
        if settings.warmup and (copies := check_copies(handle, settings)) is not None:
            yield copies
    except Exception as fault:  # whatever the model raises at its first batch
        yield error("load", last_words(fault), f"jitney inspect {settings.model_path} runs it")
    finally:
        handle.close()
