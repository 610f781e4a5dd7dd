"""Predictions in apps that exist already: the examples as their first lines say, and the code of the document."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.system.conftest import ROOT, Server, free_port

pytestmark = pytest.mark.system

TEXT = (ROOT / "docs" / "integrating.md").read_text(encoding="utf-8")
LOGIN = {"Authorization": "Bearer team"}
GUARD_S = 10


def block(words: str) -> str:
    (found,) = [code for code in re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL) if words in code]
    return found


def test_an_app_with_a_login_has_predictions_beside_it_under_a_prefix(start):
    server = start("--chdir", str(ROOT / "examples"), app="mounted_app:app", wait=False)
    server.wait_until(lambda: server.get("/ml/healthz").status_code == 200)
    assert server.post({"instances": [[3, 4]]}, "/ml/predict").json()["predictions"] == [5]
    assert server.get("/orders/12").status_code == 401
    answer = requests.get(f"{server.url}/orders/12", headers=LOGIN, timeout=GUARD_S)
    assert answer.json() == {"order": 12, "state": "packed"}
    assert "inference_rows_total" in server.get("/ml/metrics").text
    for path in ("/predict", "/healthz", "/mlpredict"):
        assert "<title>401 Unauthorized</title>" in server.get(path).text
    assert server.get("/ml/nowhere").headers["Content-Type"] == "application/problem+json"
    assert server.stop() == 0
    assert "Traceback" not in server.text()


def test_a_program_of_the_teams_own_runs_gunicorn_with_its_hooks(tmp_path: Path):
    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "own_launcher.py")],
            env={**os.environ, "BIND": f"127.0.0.1:{port}"},
            cwd=tmp_path,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    server = Server(process, f"http://127.0.0.1:{port}", log)
    try:
        server.wait_ready()
        assert server.get("/").text == "our own page, as before"
        assert server.predict([3, 4]).json()["predictions"] == [5]
        assert "our own hook" in server.text()
        assert "service.server.worker.Worker" in server.text()
    finally:
        assert server.stop() == 0
    assert "Traceback" not in server.text()


def test_a_configuration_file_of_the_teams_own_begins_with_jitneys(start, tmp_path: Path):
    (tmp_path / "ours.py").write_text(block("accesslog"))
    (tmp_path / "app.py").write_text(block("DispatcherMiddleware"))
    server = start("-c", str(tmp_path / "ours.py"), "--pythonpath", str(tmp_path), app="app:app", wait=False)
    server.wait_until(lambda: server.get("/ml/healthz").status_code == 200)
    assert server.post({"instances": [[3, 4]]}, "/ml/predict").json()["predictions"] == [7]
    assert "our own hook" in server.text()
    server.wait_until(lambda: "POST /ml/predict" in server.text())
    assert server.stop() == 0


def test_a_blueprint_of_ones_own_answers_with_batched_results(start, tmp_path: Path):
    ending = """
import atexit
from flask import Flask

atexit.register(doubled.close)
app = Flask("ours")
app.register_blueprint(prices)
"""
    (tmp_path / "app.py").write_text(block("doubled") + ending)
    server = start("--pythonpath", str(tmp_path), app="app:app", wait=False)
    server.wait_until(lambda: server.get("/prices/21").status_code == 200)
    assert server.get("/prices/21").json() == {"price": 42}
    assert server.stop() == 0


def test_the_login_of_the_document_lets_probes_through(start, tmp_path: Path):
    around = """
from flask import Flask
from loaders import ModelHandle
from service import Jitney

app = Flask("ours")
app.before_request(check_login)
Jitney(app, model_handle=ModelHandle.from_callable(lambda rows: [row.sum() for row in rows], name="sum"))
"""
    (tmp_path / "app.py").write_text(block("check_login") + around)
    server = start("--pythonpath", str(tmp_path), app="app:app")
    assert [server.get(path).status_code for path in ("/livez", "/metrics", "/models")] == [200, 200, 401]
    assert server.predict([3, 4]).status_code == 401
    answer = requests.post(f"{server.url}/predict", json={"instances": [[3, 4]]}, headers=LOGIN, timeout=GUARD_S)
    assert answer.json()["predictions"] == [7]
