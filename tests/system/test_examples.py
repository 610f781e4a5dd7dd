"""The examples, run as their first lines say."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.system.conftest import ROOT

pytestmark = pytest.mark.system


def test_the_batcher_alone_fills_batches_and_gives_right_answers():
    command = [sys.executable, "examples/threaded_batcher.py"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    (mean,) = re.findall(r"(\d+\.\d) rows per call; every answer is right", output)
    assert float(mean) > 4


def test_an_existing_app_keeps_its_pages_and_gains_batching(start):
    server = start("--chdir", str(ROOT / "examples"), app="existing_flask_app:app")
    assert server.get("/").text == "our own page, as before"
    assert server.predict([3, 4], [6, 8]).json()["predictions"] == [5, 10]
    assert server.get("/square/12").json() == {"square": 144}
    assert "<title>404 Not Found</title>" in server.get("/nowhere").text
    assert server.stop() == 0
    assert "Traceback" not in server.text()


def test_the_handover_benchmark_runs_and_reports_a_ratio():
    command = [sys.executable, "benchmark/handover.py", "--rounds", "1"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    assert re.search(r"Ratio of the medians: \d+\.\d\d\.", output)


def test_the_overhead_benchmark_compares_in_process_and_through_gunicorn():
    command = [sys.executable, "benchmark/overhead.py", "--blocks", "2", "--rounds", "1", "--seconds", "0.5"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    assert len(re.findall(r"^\| ratio \| \d+\.\d\d \| \d+\.\d\d \|$", output, re.MULTILINE)) == 3
    assert re.search(r"^\| POST /predict \| [1-9]\d* \| [1-9]\d* \|$", output, re.MULTILINE)
