"""Whether an nginx in front lets through what the service takes, waits as long, and sends nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from service.doctor.findings import Finding, error, ok, warning
from service.doctor.gunicorn_values import GunicornValues
from service.doctor.nginx_directives import check_values, size_bytes, time_s
from service.doctor.nginx_file import NginxError, read_nginx
from service.doctor.nginx_scopes import Handover, handovers
from service.settings import Settings

# What nginx does where nothing is written (nginx.org, ngx_http_core_module, _proxy_module, _upstream_module).
_BODY_BYTES = 1024**2
_PROXY_TIMEOUT_S = 60.0
_UPSTREAM_KEEPALIVE_S = 60.0

# Idle connections that nginx keeps to the service; a few are enough, as a connection carries one request at a time.
_KEPT_CONNECTIONS = 64

# The side that closes an idle connection first must be the one that sends requests; a second for what is under way.
_CLOSING_MARGIN_S = 1.0

_BORING_INCLUDES = ("mime.types",)


def check_nginx(path: Path, settings: Settings, gunicorn: GunicornValues) -> Iterator[Finding]:
    """Findings about the file at `path`; one error when it cannot be read."""
    try:
        file = read_nginx(path)
    except NginxError as fault:
        yield error("nginx file", str(fault), "nginx -t shows what nginx itself makes of it")
        return
    for left_out in file.left_out:
        if not left_out.partition(":")[0].endswith(_BORING_INCLUDES):
            yield warning("nginx include", f"not read: {left_out}", "give the file that includes it, in its directory")
    yield from check_values(file.root)
    found, is_ours = handovers(file, _port_or_path(settings.bind))
    if not found:
        yield error("nginx proxy_pass", "no block hands requests on", f"proxy_pass http://{settings.bind};")
        return
    if not is_ours:
        yield warning(
            "nginx proxy_pass",
            f"no block leads to BIND={settings.bind}; all {len(found)} that hand requests on were checked",
            f"server {settings.bind};",
        )
    for handover in found:
        yield from _check(handover, settings, gunicorn)


def _check(here: Handover, settings: Settings, gunicorn: GunicornValues) -> Iterator[Finding]:
    where = f"nginx {here.where}"
    yield from _body(here, where, settings)
    yield from _read_timeout(here, where, settings, gunicorn)
    yield from _send_timeout(here, where, settings)
    yield from _kept_connections(here, where, gunicorn)
    yield _buffering(here, where)
    yield _next_upstream(here, where)


# What is no size or time at all, `check_values` has said.


def _body(here: Handover, where: str, settings: Settings) -> Iterator[Finding]:
    words = here.value("client_max_body_size")
    limit = _BODY_BYTES if words is None else size_bytes(_first(words))
    least = settings.max_body_bytes
    told = f"client_max_body_size {_first(words)}" if words else "client_max_body_size is not set, which means 1m"
    if limit and limit < least:
        found = f"{told}: nginx refuses bodies that MAX_BODY_BYTES={least} allows, with a page"
        yield error(where, found, f"client_max_body_size {_as_size(least)};")
    elif limit is not None:
        yield ok(where, f"{told}: not less than MAX_BODY_BYTES={least}")


def _read_timeout(here: Handover, where: str, settings: Settings, gunicorn: GunicornValues) -> Iterator[Finding]:
    longest_s, told = _time(here, "proxy_read_timeout", _PROXY_TIMEOUT_S)
    request_s, stop_s = settings.request_timeout_ms / 1000, gunicorn.graceful_timeout_s
    fix = f"proxy_read_timeout {int(stop_s) + 5}s;"
    if longest_s is None:
        return
    if longest_s <= request_s:
        yield error(where, f"{told}: nginx gives up before the service answers (REQUEST_TIMEOUT_MS)", fix)
    elif longest_s <= stop_s:
        yield warning(where, f"{told}: not longer than GRACEFUL_TIMEOUT_S={stop_s}", fix)
    else:
        yield ok(where, f"{told}: longer than GRACEFUL_TIMEOUT_S={stop_s}")


def _send_timeout(here: Handover, where: str, settings: Settings) -> Iterator[Finding]:
    longest_s, told = _time(here, "proxy_send_timeout", _PROXY_TIMEOUT_S)
    request_s = settings.request_timeout_ms / 1000
    if longest_s is None:
        return
    if longest_s < request_s:
        fix = f"proxy_send_timeout {int(request_s) + 5}s;"
        yield warning(where, f"{told}: shorter than REQUEST_TIMEOUT_MS, while all threads may be busy", fix)
    else:
        yield ok(where, f"{told}: not shorter than REQUEST_TIMEOUT_MS")


def _kept_connections(here: Handover, where: str, gunicorn: GunicornValues) -> Iterator[Finding]:
    upstream = here.upstream
    kept = [] if upstream is None else upstream.named("keepalive")
    if upstream is None or not kept:
        fix = f"upstream jitney {{ server ADDRESS; keepalive {_KEPT_CONNECTIONS}; }}"
        yield warning(where, "no upstream with keepalive: nginx may open a connection for each request", fix)
        return
    idle = upstream.named("keepalive_timeout")
    idle_s = time_s(_first(idle[-1].args)) if idle else _UPSTREAM_KEEPALIVE_S
    told = f"keepalive_timeout {_first(idle[-1].args)}" if idle else "keepalive_timeout is not set, which means 60s"
    most_s = gunicorn.keepalive_s - _CLOSING_MARGIN_S
    if idle_s is not None and idle_s > most_s:
        found = f"upstream, {told}: gunicorn closes idle connections after {gunicorn.keepalive_s} s, under a request"
        yield error(where, found, f"keepalive_timeout {max(1, int(most_s) - 14)}s;")
    elif idle_s is not None:
        yield ok(where, f"upstream, {told}: less than the {gunicorn.keepalive_s} s of gunicorn")
    version, headers = here.value("proxy_http_version"), here.values("proxy_set_header")
    if version is None or _first(version) == "1.0":
        yield warning(where, "proxy_http_version is not 1.1: no connection is kept", "proxy_http_version 1.1;")
    elif not any(words[0].lower() == "connection" and words[1:] == ("",) for words in headers if words):
        fix = 'proxy_set_header Connection "";'
        yield warning(where, "the Connection header is not emptied: no connection is kept", fix)
    else:
        yield ok(where, f"proxy_http_version {_first(version)} without a Connection header: connections are kept")


def _buffering(here: Handover, where: str) -> Finding:
    if here.value("proxy_request_buffering") == ("off",):
        found = "proxy_request_buffering off: each client that sends slowly holds a thread of the service"
        return warning(where, found, "proxy_request_buffering on;")
    return ok(where, "proxy_request_buffering on: slow clients hold no thread of the service")


def _next_upstream(here: Handover, where: str) -> Finding:
    words = here.value("proxy_next_upstream") or ()
    if "non_idempotent" in words:
        fix = f"proxy_next_upstream {' '.join(word for word in words if word != 'non_idempotent') or 'error timeout'};"
        return error(where, "proxy_next_upstream non_idempotent: a prediction may be made twice", fix)
    return ok(where, "proxy_next_upstream without non_idempotent: no prediction is sent twice")


def _time(here: Handover, name: str, default_s: float) -> tuple[float | None, str]:
    words = here.value(name)
    if words is None:
        return default_s, f"{name} is not set, which means {default_s:.0f}s"
    return time_s(_first(words)), f"{name} {_first(words)}"


def _first(words: tuple[str, ...] | None) -> str:
    return words[0] if words else ""


def _as_size(size: int) -> str:
    """In nginx's words, rounded up to whole kilobytes at least."""
    if size % 1024**2 == 0:
        return f"{size // 1024**2}m"
    return f"{-(-size // 1024)}k"


def _port_or_path(bind: str) -> str | None:
    if bind.startswith("unix:"):
        return bind.removeprefix("unix:").removeprefix("//")
    return None if bind.startswith("fd:") else bind.rpartition(":")[2]
