"""A model is swapped under load in a real server: no request fails, and each is answered by the version it names."""

from __future__ import annotations

import threading
from pathlib import Path

import joblib
import numpy as np
import requests
from sklearn.linear_model import LinearRegression

from loaders import pin

CLIENTS = 32
SWAPS = 12

APP = """
from flask import request
from service import create_app

app = create_app()

@app.post("/swap")
def swap():
    try:
        return {"version": app.extensions["jitney"].load("slope", request.args["version"]).version}
    except Exception as error:
        return {"error": type(error).__name__}, 500
"""


def put(root: Path, version: int) -> None:
    """A bundle whose model multiplies by its version."""
    directory = root / "slope" / str(version)
    directory.mkdir(parents=True)
    rows = np.arange(8.0).reshape(-1, 1)
    joblib.dump(LinearRegression(fit_intercept=False).fit(rows, rows[:, 0] * version), directory / "model.joblib")
    (directory / "jitney.toml").write_text('[model]\nfile = "model.joblib"\n')
    pin(directory)


def test_swaps_fail_no_request_and_a_broken_version_changes_nothing(start, tmp_path):
    root = tmp_path / "models"
    for version in (1, 2, 3):
        put(root, version)
    (root / "slope" / "3" / "model.joblib").write_bytes(b"cut short")
    (tmp_path / "swapping.py").write_text(APP)
    server = start(
        app="swapping:app",
        PYTHONPATH=str(tmp_path),
        MODEL_PATH="",
        MODEL_FORMAT="",
        MODEL_REPOSITORY=str(root),
        MODEL_NAME="slope",
        MODEL_VERSION="1",
    )
    over = threading.Event()
    wrong: list[object] = []
    versions: set[str] = set()
    answered = [0] * CLIENTS

    def client(number: int) -> None:
        with requests.Session() as session:
            while not over.is_set():
                value = answered[number] % 97
                answer = session.post(f"{server.url}/predict", json={"instances": [[value], [number]]}, timeout=30)
                body = answer.json() if answer.status_code == 200 else {}
                version = body.get("model_version", "0")
                expected = [value * int(version), number * int(version)]
                if answer.headers.get("X-Model-Version") != version or not np.allclose(body["predictions"], expected):
                    wrong.append((answer.status_code, answer.text))
                versions.add(version)
                answered[number] += 1

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for turn in range(SWAPS):
        version = str(2 - turn % 2)
        assert requests.post(f"{server.url}/swap?version={version}", timeout=30).json() == {"version": version}
        assert requests.post(f"{server.url}/swap?version=3", timeout=30).status_code == 500
    over.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert wrong == []
    assert min(answered) > 0
    assert versions == {"1", "2"}
    states = {entry["version"]: entry["state"] for entry in server.get("/models/slope").json()["versions"]}
    assert states == {"1": "loaded", "2": "loaded", "3": "failed"}
    assert server.stop() == 0
