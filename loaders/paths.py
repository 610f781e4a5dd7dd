"""Where a model may be read from: local files only, and never outside the root they belong to."""

from __future__ import annotations

import os
import re
from pathlib import Path

from loaders.errors import ModelLoadError, UnsafePathError

# One slash, not two: a URL that went through `pathlib` has lost the second one.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def resolve_model_path(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> Path:
    """The absolute path of an existing file or directory, with every symbolic link followed.

    Raises `UnsafePathError` for a URL, for something that looks like a hub name and is not there, and for a
    path that ends outside `root`; `ModelLoadError` when nothing is there.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ModelLoadError("the model path is empty or holds a NUL character")
    if _URL.match(text):
        raise UnsafePathError(
            f"the model path {text!r} is a URL: models are read from local files only, so download it first"
        )
    try:
        resolved = Path(text).resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        if _HUB_NAME.fullmatch(text) and not Path(text).parent.exists():
            raise UnsafePathError(
                f"there is no directory {text!r}, and hub names are not looked up: "
                "download the model and give its directory"
            ) from error
        raise ModelLoadError(f"no model at {text!r}: {_reason(error)}") from error
    if root is not None:
        check_inside(resolved, Path(root), what="the model path")
    return resolved


def resolve_inside(directory: Path, file: str, *, what: str) -> Path:
    """The existing `file` of `directory`, links followed; raises `UnsafePathError` when it lies elsewhere.

    what: names the source of `file` in messages, e.g. "[model] file".
    """
    if _URL.match(file) or "\0" in file:
        raise UnsafePathError(f"{what}: {file!r} is not the name of a local file")
    try:
        resolved = (directory / file).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        # Where a missing file would have been is checked too, so that the answer tells nothing about other folders.
        check_inside((directory / file).resolve(), directory, what=what)
        raise ModelLoadError(f"{what}: {file!r} cannot be read: {_reason(error)}") from error
    check_inside(resolved, directory, what=what)
    return resolved


def check_inside(resolved: Path, root: Path, *, what: str) -> None:
    """Raise `UnsafePathError` unless `resolved` is `root` or below it."""
    if not resolved.is_relative_to(root.resolve()):
        raise UnsafePathError(f"{what} leads outside {str(root)!r}")


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
