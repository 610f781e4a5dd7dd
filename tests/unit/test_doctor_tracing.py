"""The variables of OpenTelemetry, as `jitney doctor` sees them."""

from __future__ import annotations

import threading

import pytest

from service.doctor.findings import Verdict
from service.doctor.tracing import check_tracing

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SECRET = "a-secret"


@pytest.fixture
def found(monkeypatch):
    """What is found of these variables, which are set for OpenTelemetry too: (verdict, found, fix)."""

    def find(*, is_on: bool = True, is_installed=lambda _: True, **variables: str) -> list[tuple[str, str, str]]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        findings = list(check_tracing(variables, is_on=is_on, is_installed=is_installed))
        assert not any(SECRET in each.found + each.fix for each in findings)
        assert all(bool(each.fix) != (each.verdict is Verdict.OK) for each in findings)
        return [(each.verdict.value, each.found, each.fix) for each in findings]

    return find


@pytest.mark.parametrize("name", [ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
@pytest.mark.parametrize("there", ["", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"])
def test_an_endpoint_without_the_packages_names_what_brings_them(found, name, there):
    variables = {name: "http://collector:4318"}
    ((verdict, told, fix),) = found(is_on=False, is_installed=lambda package: package == there, **variables)
    assert (verdict, told) == ("warning", f"{name} is set, and nothing is sent there: what could is not installed")
    assert fix == f"pip install 'jitney[otel]' and TRACING=otel, or unset {name}"


def test_an_endpoint_without_tracing_names_the_setting(found):
    ((verdict, _, fix),) = found(is_on=False, **{ENDPOINT: "http://collector:4318"})
    assert (verdict, fix) == ("warning", f"TRACING=otel, or unset {ENDPOINT}")


def test_where_nobody_asks_for_spans_nothing_is_said_and_nothing_imported(found):
    def nothing(package: str) -> bool:
        raise AssertionError(package)

    assert found(is_on=False, is_installed=nothing, OTEL_SERVICE_NAME="x", OTEL_METRICS_EXPORTER="otlp") == []
    assert found(is_on=False, is_installed=nothing, **{ENDPOINT: " "}) == []


def test_what_is_right_is_well_and_no_thread_is_left(found):
    threads = threading.active_count()
    ((verdict, *_),) = found(
        **{ENDPOINT: "http://127.0.0.1:9", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
        OTEL_PROPAGATORS="tracecontext, baggage",
        OTEL_PYTHON_FLASK_EXCLUDED_URLS="x",
    )
    assert (verdict, threading.active_count()) == ("ok", threads)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("OTEL_EXPORTER_OLTP_ENDPOINT", ENDPOINT),
        ("OTEL_TRACE_EXPORTER", "OTEL_TRACES_EXPORTER"),
        ("OTEL_SERVICENAME", "OTEL_SERVICE_NAME"),
    ],
)
def test_a_misspelt_name_is_told_with_the_right_one(found, name, right):
    (finding,) = found(**{name: SECRET})
    told = f"{name} is no variable of OpenTelemetry; did you mean {right}?"
    assert finding == ("warning", told, f"call it {right}, or unset it")


@pytest.mark.parametrize(
    ("variables", "verdict", "fix"),
    [
        ({"OTEL_TRACES_SAMPLER": SECRET}, "warning", "OTEL_TRACES_SAMPLER=traceidratio"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, "warning", "OTEL_TRACES_SAMPLER_ARG=0.1, for a tenth"),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "10"},
            "warning",
            "OTEL_TRACES_SAMPLER_ARG=0.1, for a tenth",
        ),
        ({ENDPOINT: "collector:4318"}, "error", f"{ENDPOINT}=http://HOST:4318"),
        ({"OTEL_PROPAGATORS": f"baggage,{SECRET}"}, "error", "OTEL_PROPAGATORS=baggage,tracecontext"),
        ({"OTEL_TRACES_EXPORTER": "pigeon"}, "error", "as the message says"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "error", "as the message says"),
        ({"OTEL_BSP_SCHEDULE_DELAY": "-1"}, "error", "as the message says"),
        ({"OTEL_SDK_DISABLED": "true"}, "warning", "TRACING=off"),
    ],
)
def test_a_value_that_cannot_be_meant_so_is_found(found, variables, verdict, fix):
    (finding,) = found(**variables)
    assert (finding[0], finding[2]) == (verdict, fix)


def test_an_exporter_that_speaks_grpc_needs_no_scheme(found):
    (finding,) = found(**{ENDPOINT: "collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "pip install opentelemetry-exporter-otlp-proto-grpc" in finding[1]  # and nothing of the endpoint
