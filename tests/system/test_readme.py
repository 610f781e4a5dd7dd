"""Every command and every piece of code in README.md, run as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from loaders.tables import BundleTables
from tests.system.conftest import ROOT, Server, free_port

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("unmeasured")]

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUARD_S = 300


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line]
# Where the commands are run from in the tests below; a command that is not here has no test.
SERVERS = {
    "make serve": "digits",
    "make serve MODEL=sentiment": "sentiment",
    "make serve MODEL=imagenet": "imagenet",
    ".venv/bin/jitney serve --model demo-models/digits": "digits",
}
OTHERS = {
    ".venv/bin/pip install requests",
    ".venv/bin/python examples/client_request.py --concurrency 64 --requests 2000",
    "make test",
}


def here(command: str, demo_models: Path, url: str) -> list[str]:
    """The command with this environment, these demo models and this server in the places of README's own."""
    command = command.replace("demo-models", str(demo_models)).replace("http://127.0.0.1:8000", url)
    words = shlex.split(command.replace(".venv", sys.prefix))
    return [*words, f"VENV={sys.prefix}", f"DEMO={demo_models}"] if words[0] == "make" else words


def run(command: list[str], **environ: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, timeout=GUARD_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def serve(tmp_path: Path, demo_models: Path):
    """Runs one of README's commands that serve; the server is ended with the test."""
    started: list[Server] = []

    def begin(command: str) -> Server:
        bind = f"127.0.0.1:{free_port()}"
        log = tmp_path / "server.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                here(command, demo_models, f"http://{bind}"),
                cwd=ROOT,
                env={**os.environ, "BIND": bind},
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        server = Server(process, f"http://{bind}", log)
        started.append(server)
        server.wait_listening()
        server.wait_ready()
        return server

    yield begin
    for server in started:
        server.stop()


def test_every_command_of_the_readme_is_run_by_a_test():
    curls = {command for command in COMMANDS if command.startswith("curl ")}
    assert set(COMMANDS) == set(SERVERS) | OTHERS | curls
    assert len(curls) == 3


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("make serve", [7]),
        ("make serve MODEL=sentiment", "positive"),
        ("make serve MODEL=imagenet", "palace"),
    ],
)
def test_make_serve_and_the_curl_line_below_it_work(serve, demo_models: Path, command: str, expected: object):
    server = serve(command)
    curl = COMMANDS[COMMANDS.index(command) + 1]
    answer = json.loads(run(here(curl, demo_models, server.url)))
    prediction = answer.get("prediction", answer["predictions"])
    best = prediction[0] if SERVERS[command] == "imagenet" else prediction
    assert (best["label"] if isinstance(best, dict) else best) == expected


def test_make_serve_prints_a_curl_line_that_works(serve, demo_models: Path):
    server = serve("make serve")
    (printed,) = [line for line in server.text().splitlines() if line.startswith("curl ")]
    assert json.loads(run(shlex.split(printed)))["predictions"] == [7]


def test_jitney_serve_and_the_example_client_work(serve, demo_models: Path):
    (serve_command,) = [command for command in SERVERS if "jitney serve" in command]
    (needed,) = [command for command in OTHERS if "pip install" in command]
    (client,) = [command for command in OTHERS if "client_request" in command]
    run(here(needed, demo_models, ""))
    server = serve(serve_command)
    output = run([*here(client, demo_models, server.url), "--url", server.url])
    assert "wrong answers and errors: 0" in output
    (mean,) = re.findall(r"mean batch size (\d+\.\d+)", output)
    assert float(mean) > 2  # several times that where nothing shares the machine


def test_make_setup_installs_what_the_tests_need(demo_models: Path):
    run(["make", "setup", f"VENV={sys.prefix}"])
    assert "coverage run -m pytest" in run(["make", "--dry-run", "test", f"VENV={sys.prefix}"])


@pytest.mark.parametrize("code", blocks("python"))
def test_the_python_code_runs(code: str, tmp_path: Path):
    script = tmp_path / "example.py"
    script.write_text(code)
    run([sys.executable, str(script)])


def test_the_bundle_shown_is_a_valid_one():
    (text,) = blocks("toml")
    assert BundleTables.model_validate(tomllib.loads(text)).model.name == "sentiment"
