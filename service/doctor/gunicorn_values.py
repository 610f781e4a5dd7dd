"""What gunicorn will really be given: our configuration, and what wins over it."""

from __future__ import annotations

import contextlib
import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.doctor.findings import Finding, error, ok, warning


@dataclass(frozen=True, slots=True)
class GunicornValues:
    """`overridden`: the names of gunicorn's settings that a command line or GUNICORN_CMD_ARGS has changed."""

    workers: int
    threads: int
    worker_connections: int
    keepalive_s: float
    graceful_timeout_s: float
    worker_class: str
    has_preload: bool
    max_requests: int
    overridden: tuple[str, ...] = ()


class WrongOptions(ValueError):
    """gunicorn would not start with these options; the message is its own."""


def gunicorn_values(config: Mapping[str, Any], arguments: Sequence[str], environ: Mapping[str, str]) -> GunicornValues:
    """What `config`, the names of the module `service.gunicorn_config`, comes to when others have had their word.

    arguments: gunicorn's options, as they follow `jitney serve --`; they win over GUNICORN_CMD_ARGS in `environ`, and
    that over the module. Raises WrongOptions.
    """
    given = {**options_of(_words(environ.get("GUNICORN_CMD_ARGS", ""))), **options_of(arguments)}

    def value(name: str) -> Any:
        return given.get(name, config[name])

    return GunicornValues(
        workers=value("workers"),
        threads=value("threads"),
        worker_connections=value("worker_connections"),
        keepalive_s=value("keepalive"),
        graceful_timeout_s=value("graceful_timeout"),
        worker_class=str(value("worker_class")),
        has_preload=bool(value("preload_app")),
        max_requests=value("max_requests"),
        overridden=tuple(sorted(name for name in given if name in config and given[name] != config[name])),
    )


def _words(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as fault:
        raise WrongOptions(f"GUNICORN_CMD_ARGS: {str(fault).lower()}") from None


def check_gunicorn(values: GunicornValues, own_worker_class: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about what was changed behind the settings' back."""
    changed = ", ".join(values.overridden)
    yield (
        warning("gunicorn options", f"a command line changes what the settings say: {changed}", "leave them out")
        if changed
        else ok("gunicorn options", "as the settings say")
    )
    if values.has_preload:
        yield error("preload", "neither threads nor CUDA survive a fork", "leave --preload out")
    if values.worker_class not in (own_worker_class, "gthread"):
        yield error("worker class", f"{values.worker_class} cannot work here", "leave --worker-class out")
    if values.max_requests:
        found = f"a worker that retires after {values.max_requests} requests leaves a gap as long as the model loads"
        yield warning("max requests", found, "leave --max-requests out")
    if "WEB_CONCURRENCY" in environ:
        yield warning("WEB_CONCURRENCY", "is set, and has no effect here: one process owns a model", "unset it")


def options_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Options by the names of gunicorn's settings, of the types that it gives them. Raises WrongOptions."""
    from gunicorn.config import Config

    config = Config()
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            options = vars(config.parser().parse_args(list(arguments)))
        options.pop("args", None)
        for name, value in options.items():
            if value is not None:
                config.set(name.lower(), value)
    except (SystemExit, ValueError, TypeError) as fault:
        lines = told.getvalue().strip().splitlines()
        raise WrongOptions(lines[-1].partition("error: ")[2] if lines else str(fault)) from fault
    return {name: config.settings[name].get() for name, value in options.items() if value is not None}
