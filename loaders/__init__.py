"""Models: found, checked and loaded into one shape, whatever framework they come from.

Importing this package imports no framework; that happens when a model of its format is loaded.
"""

from loaders.bundle import pin
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

__all__ = [
    "BundleError",
    "DeviceError",
    "EncodedText",
    "ImageInput",
    "InputKind",
    "InputSpec",
    "MissingDependencyError",
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
