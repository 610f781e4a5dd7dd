from __future__ import annotations

import os
import sys

import pytest
from click.testing import CliRunner

from service.cli import main
from service.settings import Settings


@pytest.fixture(autouse=True)
def own_environment(monkeypatch, tmp_path):
    """The command writes to the process's environment and reads ./.env."""
    before = dict(os.environ)
    for name in Settings.model_fields:
        os.environ.pop(name.upper(), None)
    monkeypatch.chdir(tmp_path)
    for name in (
        "m.onnx",
        "here.onnx",
        "some/model.onnx",
        "demo-models/digits/m.onnx",
        "demo-models/digits/jitney.toml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    yield
    os.environ.clear()
    os.environ.update(before)


class Exec:
    """Stands for `os.execv`: records the call instead of leaving this process."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def __call__(self, program: str, arguments: list[str]) -> None:
        self.calls.append((program, arguments))


def run(*arguments: str, execute: Exec | None = None):
    return CliRunner().invoke(main, arguments, obj=execute)


def test_serve_becomes_gunicorn_with_the_configuration_of_the_package():
    execute = Exec()
    result = run("serve", "--model", "some/model.onnx", "--bind", "0.0.0.0:9000", "--", "--reload", execute=execute)
    assert result.exit_code == 0, result.output
    command = ["-m", "gunicorn", "-c", "python:service.gunicorn_config", "--reload", "service:create_app()"]
    assert execute.calls == [(sys.executable, [sys.executable, *command])]
    assert (os.environ["MODEL_PATH"], os.environ["BIND"]) == ("some/model.onnx", "0.0.0.0:9000")
    assert "http://127.0.0.1:9000/healthz" in result.output


@pytest.mark.parametrize(
    ("given", "shown"),
    [(["--bind", "127.0.0.1:9001"], "9001"), (["-b", ":9002", "--reload"], "9002"), (["--no-such"], "8000")],
)
def test_what_to_try_goes_where_the_options_of_gunicorn_have_it_listen(given, shown):
    result = run("serve", "--model", "some/model.onnx", "--", *given, execute=Exec())
    assert f"curl -s http://127.0.0.1:{shown}/healthz" in result.output


def test_what_to_try_is_told_to_need_a_key_where_it_does_and_the_key_is_not_shown():
    os.environ["API_KEYS"] = "first-key-1,second-key"
    shown = run("serve", "--model", "demo-models/digits", execute=Exec()).output
    assert "X-API-Key: ..." in shown
    assert "-key" not in shown
    del os.environ["API_KEYS"]
    assert "X-API-Key" not in run("serve", "--model", "demo-models/digits", execute=Exec()).output


def test_serve_takes_the_model_from_a_dotenv_file_and_leaves_it_to_the_server_to_read(tmp_path):
    (tmp_path / ".env").write_text("MODEL_PATH=here.onnx\nLOG_LEVEL=error\n")
    os.environ["LOG_LEVEL"] = "info"
    execute = Exec()
    result = run("serve", execute=execute)
    assert result.exit_code == 0
    assert len(execute.calls) == 1
    assert "here.onnx" in result.output
    assert "MODEL_PATH" not in os.environ
    assert os.environ["LOG_LEVEL"] == "info"


def test_an_option_wins_over_the_environment():
    os.environ["MODEL_PATH"] = "old.onnx"
    run("serve", "--model", "new.onnx", execute=Exec())
    assert os.environ["MODEL_PATH"] == "new.onnx"


def test_serve_without_a_model_says_how_to_name_one():
    execute = Exec()
    result = run("serve", execute=execute)
    assert (result.exit_code, execute.calls) == (2, [])
    assert "--model PATH or set MODEL_PATH" in result.output
    assert "--repository DIRECTORY or MODEL_REPOSITORY" in result.output


def test_serve_with_a_wrong_setting_names_it():
    os.environ["MAX_BATCH_SIZE"] = "none"
    execute = Exec()
    result = run("serve", "--model", "m.onnx", execute=execute)
    assert (result.exit_code, execute.calls) == (1, [])
    assert "MAX_BATCH_SIZE='none'" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo-models/digits"], "--model demo-models/digits"),
        (["--port", "3"], "--port"),
        (["--model", "absent.onnx"], "no model at"),
        (["--model", "https://example.org/m.onnx"], "is a URL"),
        (["--model", "broken"], "[model] nmae"),
        (["--model", "bare.bin"], "tells no format"),
        (["--model", "unknown"], "no loader for model format 'onx'; known formats: joblib, onnx, "),
        (["--model", "unknown"], "did you mean onnx?"),
        (["--repository", "absent"], "MODEL_REPOSITORY=absent cannot be read"),
        (["--repository", "demo-models"], "holds no bundle at <name>/<version>/"),
        (["--model", "repository"], "repository is a repository of models: `jitney serve --repository repository`"),
        (["--model", "repository/iris"], "holds versions of one model: `jitney serve --repository repository`"),
    ],
)
def test_what_can_be_found_out_before_a_server_starts_is_said_before(tmp_path, arguments, said):
    for version in ("9", "10"):
        (tmp_path / "repository" / "iris" / version).mkdir(parents=True)
        (tmp_path / "repository" / "iris" / version / "jitney.toml").touch()
    (tmp_path / "bare.bin").touch()
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "jitney.toml").write_text("[model]\nformat = 'onx'\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "jitney.toml").write_text("[model]\nnmae = 'x'\n")
    execute = Exec()
    result = run("serve", *arguments, execute=execute)
    assert (result.exit_code != 0, execute.calls) == (True, [])
    assert said in result.output
    assert "Serving" not in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("SCHEDULER", "fast", "SCHEDULER: unknown scheduler 'fast'"), ("MODEL_FORMAT", "onx", "'onx'")],
)
def test_a_setting_that_no_server_could_start_with_is_told_before_one_starts(name, value, said):
    os.environ[name] = value
    execute = Exec()
    result = run("serve", "--model", "m.onnx", execute=execute)
    assert (result.exit_code, execute.calls) == (1, [])
    assert said in result.output


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        ('kind = "image"\nsize = [4, 4]\n', "curl -s -F file=@photo.jpg http://127.0.0.1:8000/predict"),
        ('kind = "tensor"\nshape = [2]\n', '{"instances": [[0, 0]]}'),
        ('kind = "tensor"\n', "/healthz"),
        ('kind = "tabular"\nwidth = 2\n', "/healthz"),
    ],
)
def test_serve_shows_a_request_where_the_bundle_says_enough_of_the_input(tmp_path, table, shown):
    (tmp_path / "jitney.toml").write_text(f'[model]\nfile = "m.onnx"\n[input]\n{table}')
    assert shown in run("serve", "--model", str(tmp_path), execute=Exec()).output


@pytest.mark.parametrize(
    "bind, shown",
    [
        (":9000", "http://127.0.0.1:9000 and every other address"),
        ("[::1]:9000", "at http://[::1]:9000."),
        ("unix:/run/x", "at unix:/run/x."),
    ],
)
def test_serve_shows_where_to_ask(bind, shown):
    assert shown in run("serve", "--model", "m.onnx", "--bind", bind, execute=Exec()).output


def test_serve_shows_a_request_that_a_demo_model_answers(tmp_path):
    output = run("serve", "--model", str(tmp_path / "demo-models" / "digits"), execute=Exec()).output
    assert "curl " in output
    assert "/predict" in output


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", [[], ["serve"], ["pin"], ["inspect"], ["demo"], ["doctor"], ["bench"], ["tune"]])
def test_every_command_explains_itself(command, flag):
    result = run(*command, flag)
    assert result.exit_code == 0
    assert "Usage: " in result.output


def test_the_version_is_told():
    assert run("--version").exit_code == 0


def test_demo_refuses_a_name_that_it_does_not_know_and_lists_the_others():
    result = run("demo", "numbers")
    assert result.exit_code == 2
    assert "no demo model numbers" in result.output
    assert "digits" in result.output


def test_demo_builds_nothing_when_all_that_is_named_is_there(tmp_path):
    bundle = tmp_path / "models" / "digits"
    bundle.mkdir(parents=True)
    (bundle / "jitney.toml").write_text("kept")
    result = run("demo", "digits", "--missing", "--into", str(tmp_path / "models"))
    assert (result.exit_code, result.output) == (0, "")
    assert (bundle / "jitney.toml").read_text() == "kept"


def test_pin_writes_the_digest_of_the_model_file(tmp_path):
    import hashlib

    (tmp_path / "m.joblib").write_bytes(b"model")
    (tmp_path / "jitney.toml").write_text('[model]\nname = "m"\nformat = "joblib"\nfile = "m.joblib"\n')
    result = run("pin", str(tmp_path))
    assert result.exit_code == 0, result.output
    digest = hashlib.sha256(b"model").hexdigest()
    assert result.output == f"pinned m.joblib in {tmp_path / 'jitney.toml'}\nsha256 {digest}\n"
    assert digest in (tmp_path / "jitney.toml").read_text()


def test_pin_says_when_nothing_changed_and_what_it_replaced(tmp_path):
    (tmp_path / "m.joblib").write_bytes(b"model")
    toml = tmp_path / "jitney.toml"
    toml.write_text('[model]\nfile = "m.joblib"\n')
    first = run("pin", str(tmp_path)).output.split()[-1]
    written, when = toml.read_bytes(), toml.stat().st_mtime_ns
    result = run("pin", str(tmp_path))
    assert (result.exit_code, result.output) == (0, f"nothing changed: m.joblib is pinned already\nsha256 {first}\n")
    assert (toml.read_bytes(), toml.stat().st_mtime_ns) == (written, when)
    (tmp_path / "m.joblib").write_bytes(b"another model")
    result = run("pin", str(tmp_path))
    assert "pinned m.joblib" in result.output
    assert f"in place of {first}" in result.output


def test_pin_of_a_directory_that_is_the_model_says_so(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "jitney.toml").write_text("")
    assert "pinned the directory itself in" in run("pin", str(tmp_path)).output


def test_pin_of_a_directory_without_a_bundle_says_what_is_missing(tmp_path):
    result = run("pin", str(tmp_path))
    assert result.exit_code == 1
    assert "jitney.toml" in result.output


def test_pin_of_nothing_is_a_usage_error(tmp_path):
    assert run("pin", str(tmp_path / "none")).exit_code == 2


def test_serve_takes_a_repository_instead_of_a_model(tmp_path):
    (tmp_path / ".env").write_text("MODEL_PATH=here.onnx\n")
    (tmp_path / "models" / "iris" / "1").mkdir(parents=True)
    (tmp_path / "models" / "iris" / "1" / "jitney.toml").touch()
    execute = Exec()
    result = run("serve", "--repository", "models", execute=execute)
    assert result.exit_code == 0, result.output
    assert (os.environ["MODEL_REPOSITORY"], os.environ["MODEL_PATH"]) == ("models", "")
    assert "/healthz" in result.output


def test_a_model_on_the_command_line_wins_over_a_repository_in_the_environment():
    os.environ["MODEL_REPOSITORY"] = "models"
    execute = Exec()
    assert run("serve", "--model", "here.onnx", execute=execute).exit_code == 0
    assert (os.environ["MODEL_REPOSITORY"], os.environ["MODEL_PATH"]) == ("", "here.onnx")


def test_a_model_and_a_repository_at_once_are_refused():
    assert "exclude each other" in run("serve", "--model", "m.onnx", "--repository", "models").output
    os.environ |= {"MODEL_PATH": "m.onnx", "MODEL_REPOSITORY": "models"}
    assert "MODEL_PATH and MODEL_REPOSITORY are both set" in run("serve").output
