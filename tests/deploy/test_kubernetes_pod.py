"""The container's command and environment, run where no more may be written than in the pod."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from service.metrics.directory import VARIABLE
from tests.deploy.kustomize import Rendered, kubectl, rendered
from tests.loaders.model_makers import linear_onnx
from tests.system.conftest import Server, free_port

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def pod(tmp_path_factory) -> Rendered:
    return rendered(kubectl(tmp_path_factory.mktemp("kubectl")), "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return linear_onnx(tmp_path_factory.mktemp("models") / "double.onnx")


class Volumes:
    """A directory for each volume that starts empty, and the pod's environment with these for the pod's paths."""

    def __init__(self, pod: Rendered, directory: Path) -> None:
        empty = {volume["name"] for volume in pod.pod["volumes"] if "emptyDir" in volume}
        self.at = {
            mount["mountPath"]: directory / mount["name"]
            for mount in pod.container["volumeMounts"]
            if mount["name"] in empty
        }
        for path in self.at.values():
            path.mkdir()
        self.environ = {name: self._here(value) for name, value in pod.settings.items()}
        self.environ["TMPDIR"] = self._here("/tmp")

    def _here(self, value: str) -> str:
        for inside, outside in self.at.items():
            value = value.replace(inside, str(outside))
        return value

    def files(self, mount: str) -> list[str]:
        return sorted(path.name for path in self.at[mount].rglob("*") if path.is_file())


def confined(command: list[str], writable: list[Path]) -> list[str]:
    """The command without capabilities, and with a root file system that only has these directories to write to."""
    steps = [f"mount --bind {shlex.quote(str(path))} {shlex.quote(str(path))}" for path in writable]
    steps += ["mount -o remount,bind,ro /", "! touch /refused 2> /dev/null"]
    steps.append(f"exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all {shlex.join(command)}")
    return ["unshare", "--mount", "sh", "-c", " && ".join(steps)]


@pytest.fixture(params=[1, 2], ids=["one process", "two processes"])
def running(request, pod, model, tmp_path):
    # Where no mount namespace may be made, the pod's environment alone must keep it to its volumes.
    can_confine = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    volumes, port = Volumes(pod, tmp_path), free_port()
    own = {"BIND": f"127.0.0.1:{port}", "MODEL_PATH": str(model), "WEB_WORKERS": str(request.param)}
    coverage = {"COVERAGE_FILE": str(volumes.at["/tmp"] / "coverage")}
    command = [sys.executable, "-m", *pod.container["command"]]
    log = tmp_path / "server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            confined(command, list(volumes.at.values())) if can_confine else command,
            env={**os.environ, **coverage, **volumes.environ, **own},
            cwd=tmp_path,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    server = Server(process, f"http://127.0.0.1:{port}", log)
    try:
        yield server, volumes, request.param
    finally:
        server.stop()


def test_the_pod_serves_and_ends_although_it_can_write_to_its_empty_volumes_only(running):
    server, volumes, workers = running
    paths = [f"/{path}" for path in ("livez", "healthz", "metrics")]
    server.wait_until(lambda: [server.get(path).status_code for path in paths] == [200] * len(paths))
    assert server.predict([1.0, 2.0, 3.0, 4.0]).json()["predictions"] == [[2.0, 4.0, 6.0, 8.0]]
    # Where gunicorn's own files and those of the counts are: in memory.
    assert VARIABLE in volumes.environ
    assert bool([name for name in volumes.files("/run/jitney") if name.endswith(".db")]) is (workers > 1)
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.text().splitlines() if line.startswith("{")]
    assert not [line for line in lines if line["level"] in ("error", "critical")]
