"""From a picture of any size to the model's size, in memory bounded by the picture and the target."""

from __future__ import annotations

from PIL import Image

from loaders.signature import ImageInput

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

# How many times finer than the target a picture stays when the JPEG decoder scales it down: the decoder averages
# blocks, and only a later filter over at least two of its pixels hides that. Source: Pillow's `reducing_gap`.
_GAP = 2


def side_to_keep(spec: ImageInput) -> int | None:
    """How long the shorter side must stay, pixels, while a picture is scaled down to decode it; None: as it is."""
    if spec.resize_shorter is not None:
        return _GAP * spec.resize_shorter
    return None if spec.crop is not None else _GAP * max(spec.height, spec.width)


def fit(spec: ImageInput, picture: Image.Image) -> Image.Image:
    """The picture at (`spec.height`, `spec.width`), by the filter that `spec` names.

    With `resize_shorter`, the centre of the picture scaled to it; with `crop` alone, the centre as it is. The centre
    is `crop`, by default the target itself, and is clipped to the picture.
    """
    resample = _FILTERS[spec.interpolation]
    if spec.resize_shorter is None and spec.crop is None:
        return _stretch(picture, (spec.width, spec.height), resample)
    width, height = picture.size
    scale = 1.0 if spec.resize_shorter is None else spec.resize_shorter / min(width, height)
    scaled_width, scaled_height = max(1, round(width * scale)), max(1, round(height * scale))
    crop_height, crop_width = spec.crop or (spec.height, spec.width)
    crop_width, crop_height = min(crop_width, scaled_width), min(crop_height, scaled_height)
    left, top = round((scaled_width - crop_width) / 2), round((scaled_height - crop_height) / 2)
    # Only the centre is computed: the scaled picture, as long as the aspect ratio makes it, never exists.
    per_x, per_y = width / scaled_width, height / scaled_height
    box = (left * per_x, top * per_y, (left + crop_width) * per_x, (top + crop_height) * per_y)
    box = (box[0], box[1], min(box[2], width), min(box[3], height))
    centre = picture.resize((crop_width, crop_height), resample, box=box)
    return _stretch(centre, (spec.width, spec.height), resample)


def _stretch(picture: Image.Image, size: tuple[int, int], resample: Image.Resampling) -> Image.Image:
    width, height = size
    # Pillow widens before it shortens: between the two, a high and narrow picture would be larger than at either end.
    if picture.width < width and picture.height > height:
        picture = picture.resize((picture.width, height), resample)
    return picture.resize(size, resample)
