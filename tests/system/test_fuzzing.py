"""Schemathesis makes requests from the service's own description, good and bad ones, and holds the answers against it.

Here a few for each operation, always the same ones; `make fuzz` makes many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from service.demo.curl import EXAMPLE_DIGIT, EXAMPLE_ROW, EXAMPLE_SENTENCE
from tests.system.conftest import Server, Start

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("unmeasured")]

SETUP = Path(__file__).parent / "fuzz" / "schemathesis.toml"

# For each operation, of each kind of requests that are made up.
EXAMPLES = int(os.environ.get("JITNEY_FUZZ_EXAMPLES", "1"))
GUARD_S = 240 + EXAMPLES * 10

# Short limits make short requests that reach and pass them.
LIMITS = {"MAX_INSTANCES": 6, "MAX_TEXT_CHARS": 60}
KEY = "open-sesame"
KEYS = {"API_KEYS": KEY, "METRICS_KEY": KEY, "ADMIN_TOKEN": KEY}
HEADERS = {"X-API-Key": KEY}

ALL = ("--exclude-operation-id-regex", "load$")
PREDICTIONS = (*ALL, "--include-method", "POST")
OPERATOR = ("--include-operation-id-regex", "load$")


def fuzz(server: Server, *options: str) -> None:
    """Fail unless every check holds for every answer."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", SETUP, "run", f"{server.url}/openapi.json"]
    command += ["--checks", "all", "--max-examples", EXAMPLES, "--seed", 1, "--phases", "examples,coverage,fuzzing"]
    done = subprocess.run(
        [str(part) for part in (*command, *options)],
        cwd=SETUP.parent,
        env={**os.environ, "JITNEY_FUZZ_KEY": KEY},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=GUARD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-8000:]


def ask_digits(url: str, _: Path) -> bool:
    answer = requests.post(f"{url}/predict", json={"instances": [EXAMPLE_ROW]}, headers=HEADERS, timeout=30)
    return bool(answer.json()["predictions"] == [EXAMPLE_DIGIT])


def ask_sentiment(url: str, _: Path) -> bool:
    answer = requests.post(f"{url}/predict", json={"text": EXAMPLE_SENTENCE}, headers=HEADERS, timeout=30)
    return bool(answer.json()["prediction"]["label"] == "positive")


def ask_imagenet(url: str, demo_models: Path) -> bool:
    picture = (demo_models / "imagenet" / "samples" / "china.jpg").read_bytes()
    headers = HEADERS | {"Content-Type": "image/jpeg"}
    answer = requests.post(f"{url}/predict", data=picture, headers=headers, timeout=30)
    return bool(answer.json()["prediction"][0]["label"] == "palace")


@pytest.mark.parametrize(
    "name, ask, keys, options",
    [
        pytest.param("digits", ask_digits, {}, ALL, id="rows"),
        pytest.param("digits", ask_digits, KEYS, ALL, id="rows, with keys"),
        # What is read is the same whatever the model is.
        pytest.param("sentiment", ask_sentiment, {}, PREDICTIONS, id="texts"),
        pytest.param("imagenet", ask_imagenet, {}, PREDICTIONS, id="pictures"),
    ],
)
def test_answers_are_as_described_whatever_is_sent(
    start: Start,
    demo_models: Path,
    name: str,
    ask: Callable[[str, Path], bool],
    keys: dict[str, str],
    options: tuple[str, ...],
) -> None:
    server = start(app="service:create_app()", MODEL_PATH=demo_models / name, MODEL_FORMAT="", **LIMITS, **keys)
    fuzz(server, *options)
    assert server.get("/healthz").status_code == 200
    assert ask(server.url, demo_models)


def test_so_are_those_to_an_operator(start: Start, demo_models: Path) -> None:
    model = demo_models / "digits"
    server = start(app="service:create_app()", MODEL_PATH=model, MODEL_FORMAT="", **LIMITS, **KEYS)
    fuzz(server, *OPERATOR)
    load = f"{server.url}/v2/repository/models/digits/load"
    assert requests.post(load, headers=HEADERS, timeout=30).status_code == 200
    assert ask_digits(server.url, demo_models)
