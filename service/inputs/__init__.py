"""From parsed instances to rows that a batch can take; all of it on the request's own thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.signature import ImageInput, InputSpec, TabularInput, TextInput
from service.inputs import image, tabular, tensor, text
from service.inputs.numbers import MayBeRounded
from service.inputs.rows import InputLimits, PreparedRow

__all__ = ["InputLimits", "MayBeRounded", "PreparedRow", "prepare"]


def prepare(
    spec: InputSpec, instances: list[Any], limits: InputLimits, column_types: Sequence[str | None] = ()
) -> list[PreparedRow]:
    """One prepared row per instance, in order; all or nothing.

    column_types: what a model of a table that holds more than numbers knows of its columns, "number", "float32",
    "integer", "numeric", "boolean" or "text", and None where it knows nothing; empty when it knows nothing of any.

    instances: at least one; JSON values as Python objects, or `bytes` for an uploaded picture.
    Raises InvalidInput with the places that are wrong, TooLarge or UnsupportedMedia; MayBeRounded
    when `limits` ask for it.
    """
    if isinstance(spec, TabularInput):
        return tabular.prepare(spec, instances, column_types, may_be_rounded=limits.may_be_rounded)
    if isinstance(spec, TextInput):
        return text.prepare(spec, instances, limits.max_text_chars)
    if isinstance(spec, ImageInput):
        return image.prepare(spec, instances, limits.max_image_pixels)
    return tensor.prepare(spec, instances, may_be_rounded=limits.may_be_rounded)
