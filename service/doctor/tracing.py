"""The variables of OpenTelemetry: whether spans are sent at all, and whether each variable says what it was meant to.

Nothing is sent and no connection made; where tracing is off, nothing of OpenTelemetry is imported either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points

from service.doctor.findings import Finding, error, ok, warning
from service.doctor.installed import IsThere, is_installed
from service.misspelt import misspelt
from service.settings import SettingsError

_PREFIX = "OTEL_"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SDK = "opentelemetry-sdk"
_EXPORTERS = ("opentelemetry-exporter-otlp-proto-http", "opentelemetry-exporter-otlp-proto-grpc")

# *Source:* OpenTelemetry's specification of its variables: samplers that take a share, which their argument gives.
_WITH_SHARE = frozenset({"traceidratio", "parentbased_traceidratio"})
_SAMPLER = "OTEL_TRACES_SAMPLER"
_PROPAGATORS = "OTEL_PROPAGATORS"


def check_tracing(
    environ: Mapping[str, str], *, is_on: bool, is_installed: IsThere = is_installed
) -> Iterator[Finding]:
    """OTEL_* against TRACING and what is installed; nothing where neither asks for spans."""
    given = {name: value.strip() for name, value in environ.items() if name.startswith(_PREFIX) and value.strip()}
    if not is_on:
        yield from _in_vain(given, is_installed)
        return
    faults = [*_names(given), *_sampler(given), *_endpoints(given), *_propagators(given), *_start()]
    yield from faults or [ok("tracing", "on, and the variables OTEL_... can be begun with")]


def _in_vain(given: Mapping[str, str], is_installed: IsThere) -> Iterator[Finding]:
    """An endpoint where nothing is sent. Other variables may be meant for others."""
    endpoint = next((name for name in _ENDPOINTS if name in given), None)
    if endpoint is None:
        return
    found, fix = f"{endpoint} is set, and nothing is sent there", f"TRACING=otel, or unset {endpoint}"
    if not is_installed(_SDK) or not any(map(is_installed, _EXPORTERS)):
        found, fix = f"{found}: what could is not installed", f"pip install 'jitney[otel]' and {fix}"
    yield warning("tracing", found, fix)


def _names(given: Mapping[str, str]) -> Iterator[Finding]:
    """Names that look like one of OpenTelemetry's; those of instrumentations, of which there are many, do not."""
    from opentelemetry import environment_variables as api
    from opentelemetry.sdk import environment_variables as sdk

    known = [name for module in (api, sdk) for name in dir(module) if name.startswith(_PREFIX)]
    for name, right in misspelt(given, known).items():
        found = f"{name} is no variable of OpenTelemetry; did you mean {right}?"
        yield warning("tracing", found, f"call it {right}, or unset it")


def _sampler(given: Mapping[str, str]) -> Iterator[Finding]:
    """What OpenTelemetry would replace by its default: then all is recorded."""
    sampler, argument = given.get(_SAMPLER, "").lower(), f"{_SAMPLER}_ARG"
    known = sorted(entry.name for entry in entry_points(group="opentelemetry_traces_sampler"))
    if sampler and sampler not in known:
        yield warning(
            "tracing", f"{_SAMPLER} is none of {', '.join(known)}: all is recorded", f"{_SAMPLER}={known[-1]}"
        )
    elif sampler in _WITH_SHARE and not _is_share(given.get(argument, "")):
        yield warning(
            "tracing", f"{argument} is no number from 0 to 1: all is recorded", f"{argument}=0.1, for a tenth"
        )


def _is_share(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def _endpoints(given: Mapping[str, str]) -> Iterator[Finding]:
    """Where spans go over HTTP there must be a URL; an address without a scheme is found out at the first of them."""
    if (given.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or given.get("OTEL_EXPORTER_OTLP_PROTOCOL")) == "grpc":
        return
    for name in _ENDPOINTS:
        if name in given and not given[name].lower().startswith(("http://", "https://")):
            yield error("tracing", f"{name} is no URL: every span is lost", f"{name}=http://HOST:4318")


def _propagators(given: Mapping[str, str]) -> Iterator[Finding]:
    """Headers that are read by nobody end the start."""
    known = sorted(entry.name for entry in entry_points(group="opentelemetry_propagator"))
    asked = {name.strip() for name in given.get(_PROPAGATORS, "").split(",")} - {""}
    if asked - {*known, "none"}:
        found = f"{_PROPAGATORS} names one that is not installed; there are {', '.join(known)}"
        yield error("tracing", found, f"{_PROPAGATORS}={','.join(known)}")


def _start() -> Iterator[Finding]:
    """What would end the start of the service, which makes the same exporters; they connect when they send."""
    try:
        from service.tracing.exporters import exporters, is_disabled
        from service.tracing.tracing import Tracing

        if is_disabled():
            yield warning("tracing", "OTEL_... switches off what TRACING=otel switches on", "TRACING=off")
            return
        tracing = Tracing(exporters())
        tracing.start()
        tracing.close()
    except SettingsError as fault:
        yield error("tracing", str(fault), "as the message says")
