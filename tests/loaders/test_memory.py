"""Batches come in ever-new shapes; memory must not grow with them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model_makers import WIDE_MB, make_tokenizer, token_onnx, wide_model

from loaders import load_model

WARM_CALLS = 150
CALLS = 600
MOST_GROWTH = 0.10

# In a process of its own: what other tests leave behind, and give back, would be counted too.
MEASURE = """
import random, sys
from loaders import load_model

def resident():
    return int(open("/proc/self/statm").read().split()[1])

handle = load_model(sys.argv[1], device="cpu")
rng = random.Random(1)
texts = [handle.input.encode("good " * length) for length in range(1, int(sys.argv[4]))]

def call():
    rows = rng.choices(texts, k=rng.randrange(1, 33))
    assert len(handle.predict_batch(rows)) == len(rows)

for _ in range(int(sys.argv[2])):
    call()
before = resident()
for _ in range(int(sys.argv[3]) - int(sys.argv[2])):
    call()
print(resident() / before - 1)
"""


@pytest.mark.parametrize("fmt", ["onnx", "transformers"])
def test_memory_does_not_grow_with_ever_new_shapes(tmp_path: Path, sentiment: Path, fmt: str) -> None:
    model = token_onnx(tmp_path, make_tokenizer()) if fmt == "onnx" else sentiment
    longest = 400 if fmt == "onnx" else 30
    command = [sys.executable, "-c", MEASURE, str(model), str(WARM_CALLS), str(CALLS), str(longest)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], env=environ, check=True
    )
    assert float(done.stdout) < MOST_GROWTH


def test_onnxruntime_keeps_no_plan_for_every_shape_it_has_seen(digits_onnx: Path) -> None:
    handle: Any = load_model(digits_onnx, device="cpu")
    assert handle.predict._session.get_session_options().enable_mem_pattern is False


# Loads a version, frees it and loads the next, as a service does that gets ever new versions.
UNLOAD = """
import gc, sys
from service import create_app, Settings

def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

gc.disable()  # memory must come back by itself
app = create_app(Settings(model_repository=sys.argv[1], max_batch_latency_ms=0, warmup=True))
runtime = app.extensions["jitney"]
runtime.start()
assert runtime.batcher().wait_started(60)
body = {"instances": [[0.5] * 2000]}
figures = []
for _ in range(3):
    with app.test_client() as client:
        assert client.post("/predict", json=body).status_code == 200
    loaded = resident_mb()
    assert runtime.unload("wide")
    figures.append((loaded, resident_mb()))
    runtime.load("wide")
runtime.close(30)
print(figures)
"""


@pytest.mark.parametrize("fmt", ["onnx", "torchscript", "pt2", "joblib"])
def test_an_unloaded_model_gives_its_memory_back(tmp_path: Path, fmt: str) -> None:
    directory = tmp_path / "wide" / "1"
    directory.mkdir(parents=True)
    wide_model(directory, fmt)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", UNLOAD, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MAX_BATCH_SIZE": "2"},
    )
    assert done.returncode == 0, done.stderr
    figures = ast.literal_eval(done.stdout)
    assert all(loaded - unloaded > 0.7 * WIDE_MB for loaded, unloaded in figures[1:]), figures
    assert figures[-1][0] - figures[1][0] < 0.3 * WIDE_MB, figures
