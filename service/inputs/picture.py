"""From the bytes of a file to an upright RGB picture; every fault of the file is found here.

Pillow opens files lazily and its parsers raise whatever they trip over. Here the header is judged first, the pixels
are decoded at once, and each failure becomes an error that says what is wrong with the file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from PIL import ExifTags, Image

from service.errors import InvalidInput, JitneyError, TooLarge, UnsupportedMedia
from service.inputs import png
from service.inputs.colour import to_rgb

# JPEG cannot be longer, and the filter of a resize takes memory in proportion to the side.
_MAX_SIDE = 65_535

# The first bytes of each type. Source: the `_accept` functions of Pillow's plug-ins.
_SIGNATURES: dict[str, Callable[[bytes], bool]] = {
    "JPEG": lambda head: head.startswith(b"\xff\xd8\xff"),
    "PNG": lambda head: head.startswith(b"\x89PNG\r\n\x1a\n"),
    "WEBP": lambda head: head.startswith(b"RIFF") and head[8:12] == b"WEBP",
    "GIF": lambda head: head.startswith((b"GIF87a", b"GIF89a")),
    "BMP": lambda head: head.startswith(b"BM"),
    "TIFF": lambda head: head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
}

_ALLOWED = "JPEG, PNG, WebP, GIF, BMP or TIFF"

# The scales of libjpeg's decoder.
_JPEG_FACTORS = (8, 4, 2)

# EXIF's "Orientation": how the stored picture is turned to stand upright. 1 needs nothing.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(data: bytes, *, max_pixels: int, side_to_keep: int | None, loc: str) -> Image.Image:
    """The first frame of the file, upright, mode RGB; a JPEG may come out scaled down.

    The type is told from the content. max_pixels: width times height, checked before anything is decoded.
    side_to_keep: how long the shorter side stays at least, pixels; None: the picture keeps its size.
    Raises UnsupportedMedia, TooLarge, or InvalidInput at `loc`.
    """
    if not data:
        raise InvalidInput.at(loc, "must not be empty")
    kind = next((name for name, matches in _SIGNATURES.items() if matches(data)), None)
    if kind is None:
        raise UnsupportedMedia(f"{loc} is not a picture of a known type; allowed are {_ALLOWED}")
    try:
        with _open(data, kind, max_pixels) as file:
            _check_size(file, max_pixels, loc)
            if kind == "PNG" and not png.is_whole(data):
                raise InvalidInput.at(loc, "is a truncated or corrupt image (PNG)")
            if kind == "JPEG" and side_to_keep is not None:
                _let_shrink(file, side_to_keep)
            file.load()
            return to_rgb(_upright(file), loc)
    except JitneyError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        # Raised on opening, so that only the text of the error holds the size.
        seen = re.search(r"\d+", str(error))
        raise _too_large("" if seen is None else seen.group(), max_pixels, loc) from error
    except Exception as error:
        raise InvalidInput.at(loc, f"is a truncated or corrupt image ({kind})") from error


def _open(data: bytes, kind: str, max_pixels: int) -> Any:
    # Pillow warns of, and refuses, pictures over its own process-wide limit. Ours is the one that is documented, so
    # Pillow's is raised to it; it is never lowered, nor lifted, for whatever else runs in this process.
    if Image.MAX_IMAGE_PIXELS is not None and max_pixels > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = max_pixels
    return Image.open(io.BytesIO(data), formats=(kind,))


def _check_size(file: Any, max_pixels: int, loc: str) -> None:
    width, height = file.size
    if width * height > max_pixels:
        raise _too_large(str(width * height), max_pixels, loc)
    if max(width, height) > _MAX_SIDE:
        raise InvalidInput.at(loc, f"has a side of more than {_MAX_SIDE} pixels")


def _too_large(pixels: str, max_pixels: int, loc: str) -> TooLarge:
    seen = f", {pixels}," if pixels else ""
    return TooLarge(f"the number of pixels of {loc}{seen}", max_pixels, "MAX_IMAGE_PIXELS")


def _let_shrink(file: Any, side_to_keep: int) -> None:
    """Have the JPEG decoder scale the picture down, which costs less than decoding all of it.

    Only by a factor that divides both sides: otherwise the decoder rounds the size up, and what is resized
    later is a little stretched.
    """
    width, height = file.size
    for factor in _JPEG_FACTORS:
        if min(width, height) // factor >= side_to_keep and width % factor == 0 and height % factor == 0:
            file.draft(None, (width // factor, height // factor))
            return


def _upright(file: Any) -> Any:
    try:
        orientation = file.getexif().get(ExifTags.Base.Orientation)
        turn = _UPRIGHT.get(orientation)
    except Exception:  # the block is an extra, and its reader raises whatever it trips over
        return file
    return file if turn is None else file.transpose(turn)
