"""Frameworks are imported late, and a missing one is answered with the command that installs it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from loaders.errors import MissingDependencyError, ModelLoadError


def require(module: str, *, extra: str) -> ModuleType:
    """The imported `module`; raises `MissingDependencyError` naming the extra of this package that brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.partition(".")[0] != error.name.partition(".")[0]:
            raise ModelLoadError(f"{module} is installed, but lacks a package it needs: {error}") from error
        raise MissingDependencyError(
            f"this model needs {module}, which is not installed: pip install 'jitney[{extra}]'"
        ) from error
    except (ImportError, OSError) as error:
        # A shared library that does not fit the machine ends up here.
        raise ModelLoadError(f"{module} is installed, but cannot be imported: {error}") from error
