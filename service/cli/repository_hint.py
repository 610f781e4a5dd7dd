"""A word for who names a repository, or the versions of a model in one, where a single model is meant."""

from __future__ import annotations

from pathlib import Path

from loaders.bundle import BUNDLE_FILE


def repository_hint(path: Path) -> str:
    """What to call instead, to be put behind a message; empty where `path` is nothing of the kind."""
    version = _newest_bundle(path)
    if version is not None:
        parent = path.parent if path.name else path.resolve().parent
        return _hint(f"{path} holds versions of one model", parent, path / version)
    for model in sorted(_directories(path)):
        version = _newest_bundle(model)
        if version is not None:
            return _hint(f"{path} is a repository of models", path, model / version)
    return ""


def _hint(what: str, repository: Path, bundle: Path) -> str:
    return f"; {what}: `jitney serve --repository {repository}` serves it, `jitney inspect {bundle}` shows one of them"


def _newest_bundle(directory: Path) -> str | None:
    from service.models.repository import newest

    return newest(entry.name for entry in _directories(directory) if (entry / BUNDLE_FILE).is_file())


def _directories(parent: Path) -> list[Path]:
    try:
        return [entry for entry in parent.iterdir() if entry.is_dir()]
    except OSError:
        return []
