"""Pictures, files of them, and what a model gets of those."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from loaders.signature import ImageInput
from service.inputs import InputLimits, prepare

LIMITS = InputLimits(max_image_pixels=20_000_000, max_text_chars=1000)
RAW = ImageInput(32, 64, layout="NHWC", dtype="uint8")
ALL_TYPES = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"]


def pixels(data: Any, spec: ImageInput = RAW, limits: InputLimits = LIMITS) -> Any:
    [row] = prepare(spec, [data], limits)
    return row.payload


def of_size(width: int, height: int, **options: Any) -> ImageInput:
    return ImageInput(height, width, layout="NHWC", dtype="uint8", **options)


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def red_and_blue(width: int = 64, height: int = 32) -> Image.Image:
    """Left half red, right half blue, with a green corner at the top left: no two turns of it look alike."""
    picture = Image.new("RGB", (width, height), "red")
    picture.paste("blue", (width // 2, 0, width, height))
    picture.paste("green", (0, 0, width // 4, height // 4))
    return picture


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def smooth(width: int, height: int) -> Image.Image:
    """Waves of some tens of pixels: what a photograph looks like at its own scale."""
    y, x = np.mgrid[:height, :width]
    waves = [127 + 90 * np.sin(x / 37) + 37 * np.cos(y / 23), 127 + 127 * np.sin((x + y) / 51), 255 * x / width]
    return Image.fromarray(np.stack(waves, -1).astype(np.uint8))


def exif(orientation: int) -> Image.Exif:
    block = Image.Exif()
    block[0x0112] = orientation
    return block
