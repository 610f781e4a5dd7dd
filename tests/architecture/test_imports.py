"""What importing the packages, and making an app, must not do: each is tried in a fresh interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAVY = [
    "torch",
    "transformers",
    "tokenizers",
    "onnxruntime",
    "onnx",
    "sklearn",
    "joblib",
    "scipy",
    "PIL",
    "opentelemetry",
    "gevent",
    "matplotlib",
]

# Names in a package are looked up when they are used; using all of them must not load a framework either.
USE_EVERYTHING = """
import loaders, service, service.app, service.cli, service.http.routes, service.runtime
for package in (loaders, service):
    for name in package.__all__:
        getattr(package, name)
"""

WATCH = """
import json, sys, threading
import service.app
from service import Settings, create_app

def is_importing():
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False

WATCHED = ("open", "_thread.start_new_thread", "subprocess.Popen", "os.listdir", "os.scandir", "os.mkdir")
seen = []

def hook(event, arguments):
    if (event in WATCHED or event.startswith("socket.")) and not is_importing():
        seen.append(event)

sys.addaudithook(hook)
app = create_app()
made_by_app, threads = list(seen), threading.active_count()
open("/dev/null").close()
json.dump({"by_app": made_by_app, "after": seen, "threads": threads, "routes": len(list(app.url_map.iter_rules()))},
          sys.stdout)
"""


def run(code: str, directory: Path) -> str:
    """What `code` prints in a fresh interpreter that runs in an empty directory without any setting."""
    environ = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "PYTHONPATH")}
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=directory, env=environ, check=True, capture_output=True, text=True).stdout


def loaded_after(code: str, names: list[str], directory: Path) -> list[str]:
    tail = f"\nimport sys, json\njson.dump([name for name in {names!r} if name in sys.modules], sys.stdout)"
    loaded: list[str] = json.loads(run(code + tail, directory))
    return loaded


@pytest.mark.parametrize("code", ["import service, loaders", USE_EVERYTHING, "import service.gunicorn_config"])
def test_no_framework_is_imported(code, tmp_path):
    assert loaded_after(code, HEAVY, tmp_path) == []


@pytest.mark.parametrize("code", ["import service, loaders", "import service.gunicorn_config"])
def test_nothing_that_sizes_its_threads_at_import_is_loaded_before_the_threads_are_sized(code, tmp_path):
    assert loaded_after(code, ["numpy"], tmp_path) == []


def test_the_metrics_library_is_not_loaded_before_it_is_known_whether_processes_count_together(tmp_path):
    assert loaded_after("import service.gunicorn_config", ["prometheus_client"], tmp_path) == []


SERVE_ONE = """
import loaders, service
handle = loaders.ModelHandle.from_callable(lambda rows: [0] * len(rows), name="m")
app = service.create_app(service.Settings(max_batch_latency_ms=0, warmup=False), model_handle=handle)
assert app.test_client().post("/predict", json={"instances": [[1]]}).status_code == 200
app.extensions["jitney"].close()
"""


def test_serving_loads_nothing_that_traces_unless_that_is_switched_on(tmp_path):
    traces = ["opentelemetry", "service.tracing", "service.http.traced"]
    assert loaded_after(SERVE_ONE, traces, tmp_path) == []
    switched_on = "import service; service.create_app(service.Settings(tracing='otel'))"
    assert loaded_after(switched_on, traces, tmp_path) == traces


def test_making_an_app_starts_no_thread_and_opens_no_file_or_socket(tmp_path):
    seen: dict[str, Any] = json.loads(run(WATCH, tmp_path))
    assert seen["by_app"] == []
    assert seen["threads"] == 1
    assert seen["routes"] >= 6
    assert seen["after"] == ["open"], "the watch itself must see what is opened"
