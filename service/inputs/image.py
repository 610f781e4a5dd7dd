"""Pictures: from an upload or base64 text to the normalised array that the model sees.

Pillow is imported at the first picture, or by `require` at the start, so that a service for another kind of
model runs without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from loaders.errors import MissingDependencyError
from loaders.signature import ImageInput
from service.inputs.base64_text import decode_base64
from service.inputs.rows import PreparedRow


def require() -> None:
    """Import what decoding needs, or raise MissingDependencyError naming the extra that brings it."""
    try:
        import_module("service.inputs.picture")
    except ImportError as error:
        raise MissingDependencyError("models of pictures need Pillow: pip install 'jitney[images]'") from error


def prepare(spec: ImageInput, instances: list[Any], max_pixels: int) -> list[PreparedRow]:
    """One row per picture; its payload is [C, H, W] or [H, W, C] of `spec.dtype`, C-contiguous.

    instances: `bytes`, or objects `{"b64": "..."}`. max_pixels: width times height, read before decoding.
    Raises InvalidInput for a picture that cannot be decoded, UnsupportedMedia for what is no picture of a known
    type, TooLarge for one with too many pixels.
    """
    require()
    rows = []
    for i, instance in enumerate(instances):
        array = _to_array(spec, instance, max_pixels, f"instances[{i}]")
        rows.append(PreparedRow(array, shape_key=(*array.shape, spec.dtype)))
    return rows


def _to_array(spec: ImageInput, instance: Any, max_pixels: int, loc: str) -> npt.NDArray[Any]:
    from service.inputs import picture, resize

    data = instance if isinstance(instance, bytes) else decode_base64(instance, loc)
    decoded = picture.decode(data, max_pixels=max_pixels, side_to_keep=resize.side_to_keep(spec), loc=loc)
    return normalise(spec, np.asarray(resize.fit(spec, decoded), np.uint8))


def normalise(spec: ImageInput, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """`(pixel * scale - mean) / std` in `spec.layout` and `spec.dtype`; for uint8 the pixels as they are.

    pixels: (height, width, 3) uint8. Computed in float32, whatever the dtype.
    """
    chw = spec.layout == "NCHW"
    # Turned round while a pixel is still one byte.
    pixels = np.ascontiguousarray(pixels.transpose(2, 0, 1) if chw else pixels)
    if spec.dtype == "uint8":
        return pixels
    per_channel = (3, 1, 1) if chw else (1, 1, 3)
    values = pixels.astype(np.float32)
    values *= np.float32(spec.scale)
    values -= np.asarray(spec.mean, np.float32).reshape(per_channel)
    values /= np.asarray(spec.std, np.float32).reshape(per_channel)
    return values.astype(spec.dtype, copy=False)
