"""What can go wrong while a model is found, checked and loaded."""

from __future__ import annotations


class ModelError(Exception):
    """Base of every error of this package; the message is written for the operator of the service."""


class UnsafePathError(ModelError):
    """The model path is a URL, a hub name, or leads outside its root."""


class BundleError(ModelError):
    """A `jitney.toml` is missing, unreadable or wrong; the message names the key."""


class UnknownFormatError(ModelError):
    """No loader is registered for the format, or the format cannot be told from the file."""


class MissingDependencyError(ModelError):
    """A package that the format needs is not installed; the message names the extra that brings it."""


class UntrustedModelError(ModelError):
    """A pickle or joblib file without a pinned SHA-256, or with a different one."""


class ModelLoadError(ModelError):
    """The file was found and trusted, but it does not hold a usable model."""


class DeviceError(ModelError):
    """The requested device does not exist here."""
