"""Where spans go, as the standard variables of OpenTelemetry say; nothing here is a setting of ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import entry_points

from opentelemetry.sdk.trace.export import SpanExporter

from service.settings import SettingsError

_GROUP = "opentelemetry_traces_exporter"

# What OTLP travels over, and the name under which its exporter is installed.
_OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

MakeExporter = Callable[[], SpanExporter]


def is_disabled() -> bool:
    """Whether OTEL_SDK_DISABLED, or an OTEL_TRACES_EXPORTER of none, forbids to record any span."""
    return _value("OTEL_SDK_DISABLED", "false").lower() == "true" or _value("OTEL_TRACES_EXPORTER", "otlp") == "none"


def exporters() -> list[MakeExporter]:
    """What makes each exporter that OTEL_TRACES_EXPORTER names; OTLP over HTTP where it is unset.

    None is made here: that may open connections. Raises SettingsError for one that is unknown or not installed.
    """
    return [_load(name.strip()) for name in _value("OTEL_TRACES_EXPORTER", "otlp").split(",")]


def _load(name: str) -> MakeExporter:
    installed = _protocol() if name == "otlp" else name
    for entry in entry_points(group=_GROUP, name=installed):
        make: MakeExporter = entry.load()
        return make
    package = "opentelemetry-exporter-" + installed.replace("_", "-")
    hint = f": pip install {package}" if installed in _OTLP.values() else f"; it must stand among the {_GROUP} ones"
    raise SettingsError(f"OTEL_TRACES_EXPORTER={name!r}: the exporter {installed} is not installed{hint}")


def _protocol() -> str:
    """The name of the OTLP exporter for the protocol that is asked for."""
    asked = _value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", _value("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"))
    if asked not in _OTLP:
        raise SettingsError(f"OTEL_EXPORTER_OTLP_PROTOCOL={asked!r}: must be one of {', '.join(_OTLP)}")
    return _OTLP[asked]


def _value(variable: str, default: str) -> str:
    """An empty variable counts as unset, as OpenTelemetry has it too."""
    return os.environ.get(variable, "").strip() or default
