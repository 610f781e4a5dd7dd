"""The guide's code and commands, run as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.conftest import ROOT

pytestmark = pytest.mark.system

GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def run(command: list[str], cwd: Path) -> str:
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_scikit_learn_model_of_the_guide_can_be_pinned_and_served(start, tmp_path: Path):
    (tmp_path / "make.py").write_text(blocks("python")[0])
    run([sys.executable, "make.py"], tmp_path)
    (commands,) = [block.splitlines() for block in blocks("sh") if "jitney pin" in block]
    pin, serve, predict, proba = commands
    assert serve == "jitney serve --model iris"
    run(shlex.split(pin), tmp_path)
    server = start(app="service:create_app()", MODEL_PATH=tmp_path / "iris", MODEL_FORMAT="")
    answers = [
        run(shlex.split(line.replace("http://127.0.0.1:8000", server.url)), tmp_path) for line in (predict, proba)
    ]
    assert '"predictions":[0]' in answers[0]
    assert '"classes":[0,1,2]' in answers[1]


def test_the_function_of_the_guide_is_served_from_any_directory(tmp_path: Path, start):
    (tmp_path / "yourmodule.py").write_text(blocks("python")[1])
    (command,) = [block.strip() for block in blocks("sh") if block.startswith("gunicorn")]
    assert command == "gunicorn -c python:service.gunicorn_config yourmodule:app"
    server = start("-c", "python:service.gunicorn_config", "--pythonpath", str(tmp_path), app="yourmodule:app")
    assert server.predict("quiet").json()["predictions"] == ["QUIET"]


def test_the_three_ways_to_send_a_picture_give_the_same_answer(start, demo_models: Path, tmp_path: Path):
    server = start(app="service:create_app()", MODEL_PATH=demo_models / "imagenet", MODEL_FORMAT="")
    (tmp_path / "photo.jpg").write_bytes((demo_models / "imagenet" / "samples" / "china.jpg").read_bytes())
    (commands,) = [block.splitlines() for block in blocks("sh") if "photo.jpg" in block]
    answers = [run(["bash", "-c", line.replace("http://127.0.0.1:8000", server.url)], tmp_path) for line in commands]
    predictions = {re.search(r'\[\{"label".*?\}\]', answer)[0] for answer in answers}
    assert len(answers) == 3
    assert len(predictions) == 1
    assert "palace" in predictions.pop()
