"""An environment for each peer: its own pinned packages, and the large ones of the environment that runs this.

torch, onnxruntime, scikit-learn and transformers take more than a gigabyte, and every peer is to run the same versions
of them. So a peer's environment sees the packages of the running one, behind its own: what a peer pins wins over what
is shared (infinity and Triton need an older numpy), and what it brings itself is seen by nobody else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"

# The largest, BentoML, has about sixty packages of its own.
INSTALL_LIMIT_S = 900.0

# What of the shared packages decides about a model's speed, and is named beside the figures.
SHARED = ("numpy", "scikit-learn", "torch", "transformers", "tokenizers", "onnxruntime", "pillow", "orjson")


class InstallFailed(Exception):
    """The packages of a peer could not be installed; the message ends with the reason."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a peer's programs are. `site`: its own packages, without those that are shared."""

    directory: Path
    site: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.directory / "bin" / "python"

    def program(self, name: str) -> str:
        """A command that one of its packages has brought."""
        return str(self.directory / "bin" / name)

    def version(self, package: str) -> str:
        """Of an installed package, its own or a shared one; empty where there is none."""
        for place in (self.site, Path(sysconfig.get_path("purelib"))):
            for found in distributions(path=[str(place)]):
                if _canonical(found.metadata["Name"]) == _canonical(package):
                    return found.version
        return ""


def own_environment() -> Environment:
    """The one that runs this, for peers that need nothing else."""
    return Environment(Path(sys.prefix), Path(sysconfig.get_path("purelib")))


def environment_for(pins: Path, folder: Path, interpreter: str = sys.executable) -> Environment:
    """The environment with the packages of this file, which names it; made now where `folder` has none that fits.

    interpreter: of the same minor version as this one. Raises InstallFailed.
    """
    directory = folder / pins.stem
    environment = Environment(directory, _site_of(directory))
    stamp = directory / "installed.sha256"
    wanted = _digest(pins, interpreter)
    if stamp.is_file() and stamp.read_text() == wanted:
        return environment
    folder.mkdir(parents=True, exist_ok=True)
    _run([interpreter, "-m", "venv", "--clear", str(directory)])
    _share_packages(environment)
    pip = [str(environment.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--requirement", str(pins)])
    stamp.write_text(wanted)
    return environment


def _share_packages(environment: Environment) -> None:
    """Behind its own packages, as a .pth file is read last."""
    shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (environment.site / "shared.pth").write_text("\n".join(sorted(shared)) + "\n")


def _run(command: list[str]) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InstallFailed(f"not installed within {INSTALL_LIMIT_S:.0f} s") from error
    except OSError as error:
        raise InstallFailed(f"cannot be installed: {error}") from error
    if done.returncode:
        raise InstallFailed(f"cannot be installed: {_reason(done.stderr)}")


def _reason(said: str) -> str:
    """The first error that was told of, else the last thing that was said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines[-1:] or ["nothing was said about it"])[0]


def _site_of(directory: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(directory), "platbase": str(directory)}))


def _digest(pins: Path, interpreter: str) -> str:
    """Of what decides what is in the environment: the pins, the interpreter, and whose packages it shares."""
    return hashlib.sha256(pins.read_bytes() + f"{interpreter}:{sysconfig.get_path('purelib')}".encode()).hexdigest()


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
