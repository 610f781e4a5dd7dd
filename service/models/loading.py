"""The model that the settings name."""

from __future__ import annotations

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.load import load_model
from service.settings import Settings


def load_configured_model(settings: Settings) -> ModelHandle:
    """Load it. Raises ModelError. *Thread:* the one that will use the model."""
    if settings.model_path is None:
        raise ModelError("MODEL_PATH is not set: it names the model file or bundle directory to serve")
    return load_model(
        settings.model_path,
        settings.model_format,
        name=settings.model_name,
        version=settings.model_version,
        device=settings.device,
        allow_pickle=settings.allow_pickle,
        pad_to_multiple_of=settings.pad_to_multiple_of,
    )
