"""Which models of a repository are loaded at the start."""

from __future__ import annotations

import logging
from typing import NamedTuple

from loaders.errors import ModelError
from service.models.repository import Repository
from service.settings import Settings

_log = logging.getLogger("jitney")


class First(NamedTuple):
    """`default`: the model that answers where none is named. `tried`: the models to load, each with its versions in
    the order in which they are tried.
    """

    default: str | None
    tried: list[tuple[str, list[str]]]


def first_of(repository: Repository, settings: Settings) -> First:
    """As many as the cache holds, the default one first. Raises ModelError when the repository does not fit the
    settings.
    """
    names = repository.names()
    for odd in repository.passed_over():
        _log.warning("MODEL_REPOSITORY: %r is passed over: it holds no bundle at <name>/<version>/", odd)
    default = settings.model_name or (names[0] if len(names) == 1 else None)
    if default is not None and default not in names:
        raise ModelError(f"MODEL_NAME={default!r} is not in MODEL_REPOSITORY, which has {', '.join(names)}")
    if settings.model_version is not None:
        if default is None:
            raise ModelError("MODEL_VERSION says nothing without MODEL_NAME: MODEL_REPOSITORY holds several models")
        if settings.model_version not in (versions := repository.versions(default)):
            raise ModelError(
                f"MODEL_VERSION={settings.model_version!r} of {default} is not in MODEL_REPOSITORY, "
                f"which has {', '.join(versions)}"
            )
    tried: list[tuple[str, list[str]]] = []
    for name in sorted(names, key=lambda name: (name != default, name)):
        pinned = settings.model_version if name == default else None
        tried.append((name, [pinned] if pinned else repository.versions(name)[::-1]))
    return First(default, tried[: settings.model_cache_size])
