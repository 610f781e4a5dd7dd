"""Pictures of any mode to RGB with 8 bits per channel."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from service.errors import InvalidInput

_WHITE = (255, 255, 255)

# 65535 / 255: what one step of 8 bits is in 16 bits.
_STEP_16_BIT = 257


def to_rgb(picture: Any, loc: str) -> Image.Image:
    """`picture` in mode RGB: transparency over white, 16-bit grey scaled to 8, other colour spaces converted.

    Integer grey without a stated depth counts as 16-bit. Floating-point pixels have no known range: InvalidInput.
    """
    if picture.mode == "F":
        raise InvalidInput.at(loc, "has floating-point pixels, whose range is not known; send 8 or 16 bits")
    if picture.mode.startswith("I"):
        return _from_16_bit(picture)
    if picture.has_transparency_data:
        rgba = picture.convert("RGBA")
        background = Image.new("RGB", rgba.size, _WHITE)
        background.paste(rgba, mask=rgba)
        return background
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _from_16_bit(picture: Any) -> Image.Image:
    values = np.asarray(picture)
    grey = (np.clip(values, 0, 65_535).astype(np.uint32) + _STEP_16_BIT // 2) // _STEP_16_BIT
    key = picture.info.get("transparency")
    if isinstance(key, int):  # PNG: the one grey value that is fully transparent
        grey[values == key] = 255
    return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
