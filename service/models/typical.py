"""One instance of a request of common size, made up for measuring what its preparation costs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, TabularInput, TextInput
from service.inputs.example import example_instance
from service.models.examples import TEXT

# Words of the text, beside those of `TEXT`.
_WORDS = 64

# A picture as messengers and shops send it, about 30 KB as JPEG: width, height, and the grain that gives
# it its size. *Source:* tried out.
_PICTURE = (512, 384)
_GRAIN = 40
_QUALITY = 80


def typical_instance(model: ModelHandle) -> Any:
    """What a client might send: 64 words, a JPEG of 30 KB, or a row that is like any other of its width."""
    spec = model.input
    if isinstance(spec, TextInput):
        return TEXT + " and on" * (_WORDS // 2)
    if isinstance(spec, ImageInput):
        return _jpeg()
    known = model.metadata.get("column_types", ()) if isinstance(spec, TabularInput) else ()
    return example_instance(spec, known, model.metadata.get("column_examples", ()))


def _jpeg() -> bytes:
    from PIL import Image

    width, height = _PICTURE
    grain = np.random.default_rng(0).integers(0, 256, (height * _GRAIN // width, _GRAIN, 3)).astype("uint8")
    written = io.BytesIO()
    Image.fromarray(grain).resize(_PICTURE, Image.Resampling.BICUBIC).save(written, "JPEG", quality=_QUALITY)
    return written.getvalue()
