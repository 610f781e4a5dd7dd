"""From settings to a model in memory."""

from __future__ import annotations

from pathlib import Path

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.load import load_model
from service.models.copies import copied
from service.models.repository import Repository
from service.settings import Settings


def load_configured_model(settings: Settings) -> ModelHandle:
    """Load the model that MODEL_PATH names, in MODEL_INSTANCES copies. Raises ModelError.

    *Thread:* the one that will use the model, or for several copies one of those.
    """
    if settings.model_path is None:
        raise ModelError(
            "MODEL_PATH is not set: it names the model file or bundle directory to serve "
            "(MODEL_REPOSITORY a directory of several)"
        )
    return _load(settings, settings.model_path, settings.model_name, settings.model_version)


def load_from_repository(settings: Settings, repository: Repository, name: str, version: str) -> ModelHandle:
    """Load one version; its directories name it, whatever its `jitney.toml` says. Raises ModelError.

    *Thread:* as for the other.
    """
    path = repository.path(name, version)
    if path is None:
        raise ModelError(f"MODEL_REPOSITORY has no version {version!r} of a model {name!r}")
    return _load(settings, path, name, version, root=repository.root)


def _load(
    settings: Settings, path: str | Path, name: str | None, version: str | None, root: Path | None = None
) -> ModelHandle:
    def load() -> ModelHandle:
        return load_model(
            path,
            settings.model_format,
            name=name,
            version=version,
            device=settings.device,
            allow_pickle=settings.allow_pickle,
            root=root,
            pad_to_multiple_of=settings.pad_to_multiple_of,
            instances=settings.model_instances,
            pack=settings.packs_texts,
        )

    return copied(load, path, settings.model_instances)
