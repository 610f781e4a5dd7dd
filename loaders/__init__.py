"""Models: found, checked and loaded into one shape, whatever framework they come from.

Names are imported when they are first used: importing this package imports no framework, not even NumPy, so that
the size of the numeric libraries' thread pools can still be set.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loaders.bundle import pin
    from loaders.cache import ModelCache
    from loaders.errors import (
        BundleError,
        DeviceError,
        MissingDependencyError,
        ModelError,
        ModelLoadError,
        UnknownFormatError,
        UnsafePathError,
        UntrustedModelError,
    )
    from loaders.handle import ModelHandle
    from loaders.load import load_model
    from loaders.registry import ModelLoader, known_formats, register_loader
    from loaders.signature import (
        EncodedText,
        ImageInput,
        InputKind,
        InputSpec,
        OutputSpec,
        TabularInput,
        TensorInput,
        TextInput,
    )

_NAMES = {
    "loaders.bundle": ("pin",),
    "loaders.cache": ("ModelCache",),
    "loaders.errors": (
        "BundleError",
        "DeviceError",
        "MissingDependencyError",
        "ModelError",
        "ModelLoadError",
        "UnknownFormatError",
        "UnsafePathError",
        "UntrustedModelError",
    ),
    "loaders.handle": ("ModelHandle",),
    "loaders.load": ("load_model",),
    "loaders.registry": ("ModelLoader", "known_formats", "register_loader"),
    "loaders.signature": (
        "EncodedText",
        "ImageInput",
        "InputKind",
        "InputSpec",
        "OutputSpec",
        "TabularInput",
        "TensorInput",
        "TextInput",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BundleError",
    "DeviceError",
    "EncodedText",
    "ImageInput",
    "InputKind",
    "InputSpec",
    "MissingDependencyError",
    "ModelCache",
    "ModelError",
    "ModelHandle",
    "ModelLoadError",
    "ModelLoader",
    "OutputSpec",
    "TabularInput",
    "TensorInput",
    "TextInput",
    "UnknownFormatError",
    "UnsafePathError",
    "UntrustedModelError",
    "known_formats",
    "load_model",
    "pin",
    "register_loader",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
