"""`make bench`, as short as it can be: the program runs and writes what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("unmeasured")]

ROOT = Path(__file__).parents[2]
GUARD_S = 300


def test_a_comparison_writes_chart_table_and_document(tmp_path):
    command = [sys.executable, str(ROOT / "benchmark" / "compare_batching.py"), "--only", "batching_comparison"]
    where = ["--duration", "0.3", "--plots", str(tmp_path / "plots"), "--write", str(tmp_path / "benchmarks.md")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *where], env=environ, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plots" / "batching_comparison.svg").read_text().startswith("<?xml")
    assert len((tmp_path / "plots" / "batching_comparison.csv").read_text().splitlines()) == 9
    assert "(plots/batching_comparison.svg)" in (tmp_path / "benchmarks.md").read_text()
    assert "wrong" not in (tmp_path / "benchmarks.md").read_text().split("## ")[1]
