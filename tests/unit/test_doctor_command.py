"""`jitney doctor` as a whole, and how its report looks."""

from __future__ import annotations

import json
import os
import sys

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from service.cli import main
from service.doctor.findings import Finding, Verdict, error, ok, warning
from service.doctor.report import MAX_WIDTH, MIN_WIDTH, as_data, as_table
from service.settings import Settings


@pytest.fixture(autouse=True)
def own_environment(monkeypatch, tmp_path):
    """The command writes to the process's environment and reads ./.env."""
    before = dict(os.environ)
    for name in Settings.model_fields:
        os.environ.pop(name.upper(), None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").touch()
    yield
    os.environ.clear()
    os.environ.update(before)


def doctor(*arguments: str, **environ: str) -> Result:
    os.environ.update(environ)
    return CliRunner().invoke(main, ["doctor", *arguments])


def told(*arguments: str, **environ: str) -> dict[str, list[tuple[str, str | None]]]:
    """check -> (verdict, fix) of its findings, those that are not well."""
    result = doctor("--json", *arguments, **environ)
    report = json.loads(result.stdout)
    assert result.exit_code == (1 if report["verdict"] == "error" else 0)
    found: dict[str, list[tuple[str, str | None]]] = {}
    for each in report["findings"]:
        if each["verdict"] != "ok":
            found.setdefault(each["check"], []).append((each["verdict"], each["fix"]))
    return found


def test_where_nothing_is_wrong_it_says_so_and_exits_with_zero():
    result = doctor(MODEL_PATH="m.onnx", COLUMNS="80")
    assert result.exit_code == 0, result.output
    assert "0 errors" in result.output
    assert "\x1b" not in result.output


def test_a_model_that_is_not_named_as_a_setting_is_refused_and_not_passed_over():
    result = doctor("m.onnx")
    assert result.exit_code == 2
    assert "give the model as MODEL_PATH=m.onnx jitney doctor" in result.output


@pytest.mark.parametrize(
    "name, right",
    [
        ("MAX_BATCHSIZE", "MAX_BATCH_SIZE"),
        ("MAX_BATCH_LATENCY", "MAX_BATCH_LATENCY_MS"),
        ("max_batch_latency", "MAX_BATCH_LATENCY_MS"),
        ("BATCH_SIZE", "MAX_BATCH_SIZE"),
        ("JITNEY_MAX_QUEUE_SIZE", "MAX_QUEUE_SIZE"),
        ("LOGLEVEL", "LOG_LEVEL"),
        ("API_KEY", "API_KEYS"),
    ],
)
def test_a_misspelt_variable_is_a_warning_with_the_right_name_and_without_its_value(name, right):
    result = doctor("--json", **{"MODEL_PATH": "m.onnx", name: "a-secret"})
    found = [each for each in json.loads(result.stdout)["findings"] if each["check"] == "environment"]
    assert [(each["verdict"], each["fix"]) for each in found] == [("warning", f"call it {right}, or unset it")]
    assert found[0]["found"] == f"{name} is no setting; did you mean {right}?"
    assert "a-secret" not in result.output


def test_an_endpoint_for_spans_is_looked_at_wherever_it_is_set(tmp_path):
    (tmp_path / ".env").write_text("OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318\n")
    assert told(MODEL_PATH="m.onnx")["tracing"] == [("warning", "TRACING=otel, or unset OTEL_EXPORTER_OTLP_ENDPOINT")]
    assert "tracing" not in told(MODEL_PATH="m.onnx", TRACING="otel")


def test_variables_of_others_and_settings_themselves_are_no_misspelt_ones():
    others = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LOG_FILE", "PORT", "PYTHON_VERSION")
    result = doctor("--json", MODEL_PATH="m.onnx", log_level="info", MAX_BATCH_SIZE="8", **dict.fromkeys(others, "1"))
    assert "environment" not in {each["check"] for each in json.loads(result.stdout)["findings"]}


def test_it_imports_no_framework_and_loads_no_model():
    before = {name for name in ("torch", "onnxruntime", "sklearn", "transformers") if name in sys.modules}
    doctor(MODEL_PATH="m.onnx")
    assert {name for name in ("torch", "onnxruntime", "sklearn", "transformers") if name in sys.modules} == before


@pytest.mark.parametrize(
    ("environ", "fix"),
    [
        ({"MAX_BATCH_SIZE": "many"}, "MAX_BATCH_SIZE=32"),
        ({"GRACEFUL_TIMEOUT_S": "5"}, "GRACEFUL_TIMEOUT_S=32"),
        ({"WARMUP": "perhaps"}, "WARMUP=true"),
        ({"LOG_FORMAT": "xml"}, "LOG_FORMAT=json"),
        ({"THREADS": "0"}, "unset THREADS"),
        ({"MODEL_PATH": "a", "MODEL_REPOSITORY": "b"}, "as the message says"),
        # To unset it would open the service.
        ({"API_KEYS": "short"}, "as the message says"),
    ],
)
def test_a_wrong_setting_is_told_with_a_value_that_is_allowed(environ, fix):
    assert told(**environ)["settings"] == [("error", fix)]


def test_what_a_wrong_setting_keeps_from_being_looked_at_is_told(tmp_path):
    (tmp_path / "nginx.conf").write_text("events {")  # a fault that is not seen yet
    found = told("--nginx", "nginx.conf", THREADS="0", MODEL_PATH="absent.onnx")
    assert found["the rest"] == [("warning", "mend it, and run this again")]
    assert "the rest" not in told("--nginx", "nginx.conf", THREADS="72")


def test_lines_of_a_dotenv_file_count_and_are_doubted(tmp_path):
    (tmp_path / ".env").write_text("MODEL_PATH=m.onnx\nTHREADS=16\nMAX_BATCHSIZE=4\nOMP_NUM_THREADS=1000\n")
    found = told()
    assert [verdict for verdict, _ in found[".env"]] == ["warning"]
    assert found["THREADS"] == [("warning", "THREADS=72")]
    assert [verdict for verdict, _ in found["native threads"]] == ["warning"]


def test_what_gunicorn_sizes_itself_is_not_taken_for_the_operators_wish():
    assert "native threads" not in told("--", "--workers", "2", MODEL_PATH="m.onnx")


def test_options_of_gunicorn_count():
    found = told("--", "--threads", "9", MODEL_PATH="m.onnx")
    assert found["THREADS"] == [("warning", "THREADS=72")]
    assert told("--", "--no-such-option", MODEL_PATH="m.onnx")["gunicorn options"][0][0] == "error"


def test_a_scheduler_that_only_the_program_knows_is_a_warning():
    assert told(MODEL_PATH="m.onnx", SCHEDULER="newest")["SCHEDULER"] == [("warning", "SCHEDULER=fifo")]


def test_an_nginx_file_is_looked_at_when_it_is_named(tmp_path):
    (tmp_path / "nginx.conf").write_text("http { server { location / { proxy_pass http://127.0.0.1:8000; } } }")
    found = told("--nginx", "nginx.conf", MODEL_PATH="m.onnx")
    assert ("error", "client_max_body_size 16m;") in found["nginx location /"]


def test_a_model_is_loaded_when_that_is_asked_for():
    ((verdict, fix),) = told("--load", MODEL_PATH="m.onnx")["load"]
    assert verdict == "error"
    assert "jitney inspect" in str(fix)


def test_a_model_that_loads_is_told(tmp_path):
    joblib = pytest.importorskip("joblib")
    from sklearn.dummy import DummyClassifier

    joblib.dump(DummyClassifier().fit([[0.0], [1.0]], [0, 1]), tmp_path / "m.joblib")
    assert "load" not in told("--load", MODEL_PATH="m.joblib", ALLOW_PICKLE="true")


def test_a_model_of_a_repository_is_not_loaded(tmp_path):
    directory = tmp_path / "models" / "a" / "1"
    directory.mkdir(parents=True)
    (directory / "m.onnx").touch()
    (directory / "jitney.toml").write_text('[model]\nfile = "m.onnx"\n')
    assert "load" not in told("--load", MODEL_REPOSITORY="models")


FINDINGS = [
    ok("settings", "all have a value that is allowed"),
    warning("THREADS", "9 threads cannot fill batches of 32 rows while others wait for their own", "THREADS=72"),
    error("nginx location /predict", "a prediction may be made twice", "proxy_next_upstream error timeout;"),
]


def test_in_80_columns_what_fixes_something_stands_below_it():
    lines = list(as_table(FINDINGS, 80))
    assert lines[0].split() == ["verdict", "check", "found"]
    assert lines[-1] == "1 error, 1 warning, 1 ok"
    (fix,) = [line for line in lines if "THREADS=72" in line]
    assert fix.strip() == "-> THREADS=72"
    assert max(map(len, lines)) <= 80


def test_in_120_columns_it_has_a_column_of_its_own():
    lines = list(as_table(FINDINGS, 120))
    assert lines[0].endswith("what fixes it")
    (row,) = [line for line in lines if line.startswith("warning")]
    assert row.endswith("THREADS=72")
    assert max(map(len, lines)) <= 120


def test_only_the_verdict_is_coloured_and_the_columns_stay_where_they_are():
    plain = list(as_table(FINDINGS, 80))
    painted = list(as_table(FINDINGS, 80, lambda text, verdict: f"<{verdict}>{text}</>"))
    assert next(line for line in painted if "<" in line).startswith("<ok>ok     </>  settings")
    assert [line.replace("</>", "").split(">")[-1] if "<" in line else line for line in painted] == plain


def test_colours_are_left_out_when_that_is_wished():
    os.environ["NO_COLOR"] = "1"
    result = CliRunner().invoke(main, ["doctor"], color=True)
    assert "\x1b" not in result.output
    del os.environ["NO_COLOR"]
    assert "\x1b[33mwarning\x1b[0m" in CliRunner().invoke(main, ["doctor"], color=True).output


WORDS = st.text(st.sampled_from("abc ./-:=;_"), max_size=120)


@given(
    st.lists(st.builds(Finding, WORDS, WORDS, st.sampled_from(Verdict), WORDS), max_size=5),
    st.integers(0, 400),
)
def test_no_line_is_wider_than_the_terminal(findings, width):
    limit = min(max(width, MIN_WIDTH), MAX_WIDTH)
    assert all(len(line) <= limit for line in as_table(findings, width))


def test_programs_get_the_same_findings():
    assert as_data(FINDINGS)["verdict"] == "error"
    assert as_data(FINDINGS)["findings"][0] == {
        "check": "settings",
        "found": "all have a value that is allowed",
        "verdict": "ok",
        "fix": None,
    }
