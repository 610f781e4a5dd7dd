"""What a model gets of a picture: upright, in RGB, of its size, and as its numbers."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.pictures import LIMITS, encoded, exif, noise, of_size, pixels, red_and_blue, smooth

from loaders.errors import MissingDependencyError
from loaders.signature import ImageInput
from service.errors import InvalidInput
from service.inputs import image, prepare

# Pillow warns of a faulty file and reads on, unless warnings are errors: here it must behave as it does in a server.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")


# --- frames, orientation, modes --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animation_only_the_first_frame_counts(kind):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert (pixels(data) == (255, 0, 0)).all()


def test_two_thousand_frames_cost_no_more_than_one():
    frames = [Image.new("RGB", (8, 8), (number % 256, 0, 0)) for number in range(255, 2255)]
    one, many = encoded(frames[0], "GIF"), encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert len(many) > 100 * len(one)

    def cost(data: bytes) -> float:
        started_at = time.process_time()
        for _ in range(20):
            pixels(data)
        return time.process_time() - started_at

    cost(one)
    assert cost(many) < 20 * cost(one)
    np.testing.assert_array_equal(pixels(many), pixels(one))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_picture_is_turned_upright_as_its_exif_says(kind, orientation):
    turns = Image.Transpose
    # How to store an upright picture so that the orientation turns it back.
    stored = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_90,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_270,
    }.get(orientation)
    upright = red_and_blue()
    picture = upright if stored is None else upright.transpose(stored)
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    difference = pixels(encoded(picture, kind, exif=exif(orientation), **options)).astype(int) - np.asarray(upright)
    assert abs(difference).mean() < (2 if kind == "JPEG" else 0.01)


@pytest.mark.parametrize("block", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0", b"x" * 50])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_broken_exif_block_is_ignored(kind, block):
    assert pixels(encoded(red_and_blue(), kind, exif=block)).shape == (32, 64, 3)


@pytest.mark.parametrize("orientation", [0, 9, 65_535])
def test_an_orientation_that_does_not_exist_is_ignored(orientation):
    data = encoded(red_and_blue(), exif=exif(orientation))
    np.testing.assert_array_equal(pixels(data), np.asarray(red_and_blue()))


@pytest.mark.parametrize("mode, grey", [("L", 90), ("LA", (90, 255)), ("1", 1), ("I;16", 90 * 257), ("P", 0)])
def test_grey_pictures_get_three_equal_channels(mode, grey):
    picture = Image.new(mode, (8, 8), grey)
    if mode == "P":
        picture.putpalette([90, 90, 90])
    assert (pixels(encoded(picture)) == (255 if mode == "1" else 90)).all()


def transparent_palette(kind: str) -> bytes:
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 255, 0, 0])
    return encoded(picture, kind, transparency=1)


def transparent_16_bit() -> bytes:
    picture = Image.new("I;16", (8, 8), 300)
    return encoded(picture, transparency=300)


@pytest.mark.parametrize(
    "data",
    [
        encoded(Image.new("RGBA", (8, 8), (255, 0, 0, 0))),
        encoded(Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "WEBP", lossless=True, exact=True),
        encoded(Image.new("LA", (8, 8), (0, 0))),
        encoded(Image.new("RGB", (8, 8), "red"), transparency=(255, 0, 0)),
        encoded(Image.new("L", (8, 8), 7), transparency=7),
        transparent_palette("PNG"),
        transparent_palette("GIF"),
        transparent_16_bit(),
    ],
)
def test_what_is_transparent_is_white(data):
    assert (pixels(data) == 255).all()


def test_a_half_transparent_picture_is_mixed_with_white():
    assert pixels(encoded(Image.new("RGBA", (8, 8), (255, 0, 0, 128))))[0, 0].tolist() == [255, 127, 127]


def test_sixteen_bits_are_scaled_to_eight_over_the_whole_range():
    ramp = Image.fromarray(np.linspace(0, 65_535, 64).astype(np.uint16)[None].repeat(32, 0))
    got = pixels(encoded(ramp))[0, :, 0].astype(float)
    np.testing.assert_allclose(got, np.linspace(0, 255, 64), atol=1)
    wide = Image.fromarray(np.array([[-5, 0, 65_535, 900_000]], np.int32))
    assert pixels(encoded(wide, "TIFF"), of_size(4, 1))[0, :, 0].tolist() == [0, 0, 255, 255]


@pytest.mark.parametrize("mode, kind", [("CMYK", "JPEG"), ("CMYK", "TIFF"), ("YCbCr", "JPEG"), ("YCbCr", "TIFF")])
def test_other_colour_spaces_are_converted(mode, kind):
    data = encoded(Image.new("RGB", (16, 16), (200, 40, 90)).convert(mode), kind)
    np.testing.assert_allclose(pixels(data)[0, 0], (200, 40, 90), atol=4)


def test_lab_pixels_are_converted():
    white = Image.merge("LAB", [Image.new("L", (8, 8), level) for level in (255, 128, 128)])
    np.testing.assert_allclose(pixels(encoded(white, "TIFF"))[0, 0], (255, 255, 255), atol=3)


def test_floating_point_pixels_are_refused():
    with pytest.raises(InvalidInput, match="floating-point"):
        pixels(encoded(Image.new("F", (8, 8), 0.5), "TIFF"))


# --- to the model's size ---------------------------------------------------------------------------------------


def test_without_a_crop_the_picture_is_stretched_to_the_size():
    picture = noise(50, 30)
    expected = np.asarray(picture.resize((20, 40), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(pixels(encoded(picture), of_size(20, 40)), expected)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(90, 60), (60, 90), (61, 61), (40, 200), (33, 47)])
def test_the_centre_of_the_scaled_picture_equals_scaling_it_whole_and_cropping(size, interpolation):
    picture = smooth(*size)
    resample = Image.Resampling[interpolation.upper()]
    scale = 48 / min(size)
    scaled = picture.resize((round(size[0] * scale), round(size[1] * scale)), resample)
    left, top = round((scaled.width - 32) / 2), round((scaled.height - 24) / 2)
    expected = np.asarray(scaled.crop((left, top, left + 32, top + 24))).astype(int)
    for crop in (None, (24, 32)):
        spec = of_size(32, 24, resize_shorter=48, crop=crop, interpolation=interpolation)
        assert abs(pixels(encoded(picture), spec) - expected).max() <= 1


def test_a_crop_alone_cuts_the_centre_as_it_is():
    picture = noise(50, 30)
    expected = np.asarray(picture.crop((15, 10, 35, 20)))
    np.testing.assert_array_equal(pixels(encoded(picture), of_size(20, 10, crop=(10, 20))), expected)


def test_a_crop_of_another_size_than_the_models_is_resized_to_it():
    assert pixels(encoded(noise(50, 30)), of_size(7, 5, resize_shorter=24, crop=(16, 16))).shape == (5, 7, 3)
    assert pixels(encoded(noise(10, 10)), of_size(20, 20, crop=(16, 16))).shape == (20, 20, 3)


@pytest.mark.parametrize("size", [(1, 8000), (8000, 1), (1, 1), (1, 65_535), (65_535, 1)])
@pytest.mark.parametrize("options", [{}, {"resize_shorter": 256}, {"crop": (224, 224)}])
def test_extreme_shapes_are_resized_without_a_giant_picture_between(size, options, monkeypatch):
    sides: list[int] = []
    resize = Image.Image.resize

    def watched(self: Image.Image, size: tuple[int, int], *args: Any, **kwargs: Any) -> Image.Image:
        rows = self.height if size[0] != self.width else 0  # Pillow scales the width first, for all rows of the box
        if kwargs.get("box"):
            rows = int(kwargs["box"][3] - kwargs["box"][1]) + 3
        sides.append(max(size[0] * rows, size[0] * size[1]))
        return resize(self, size, *args, **kwargs)

    monkeypatch.setattr(Image.Image, "resize", watched)
    assert (pixels(encoded(Image.new("RGB", size, "teal")), of_size(224, 224, **options)) == (0, 128, 128)).all()
    assert max(sides) <= 4 * 224 * 224


@pytest.mark.parametrize("options", [{"resize_shorter": 64}, {}])
@pytest.mark.parametrize("size", [(1024, 768), (777, 1031)])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_jpeg_scaled_down_while_decoding_looks_like_one_scaled_down_after(options, size, orientation):
    data = encoded(smooth(*size), "JPEG", quality=95, exif=exif(orientation))
    full = encoded(Image.open(io.BytesIO(data)).convert("RGB"), "PNG", exif=exif(orientation))
    spec = of_size(56, 56, **options)
    difference = abs(pixels(data, spec).astype(int) - pixels(full, spec))
    assert difference.mean() < 1
    assert difference.max() <= 6


def test_a_large_jpeg_is_scaled_down_while_decoding_and_a_small_one_is_not():
    from service.inputs import picture

    def decoded(width: int, height: int, side_to_keep: int | None) -> tuple[int, int]:
        data = encoded(smooth(width, height), "JPEG")
        return picture.decode(data, max_pixels=10**7, side_to_keep=side_to_keep, loc="x").size

    assert decoded(1024, 768, 96) == (128, 96)
    assert decoded(1024, 768, 97) == (256, 192)
    assert decoded(1024, 768, 500) == (1024, 768)
    assert decoded(1020, 772, 96) == (255, 193)
    assert decoded(1023, 768, 96) == (1023, 768)
    assert decoded(1024, 768, None) == (1024, 768)


# --- to the model's numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float16", 1e-2)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pixels_are_scaled_and_normalised_per_channel(layout, dtype, tolerance):
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    spec = ImageInput(32, 64, layout=layout, dtype=dtype, mean=mean, std=std)
    [row] = prepare(spec, [encoded(red_and_blue())], LIMITS)
    expected = (np.asarray(red_and_blue()) / 255 - mean) / std
    if layout == "NCHW":
        expected = expected.transpose(2, 0, 1)
    assert row.payload.dtype == dtype
    assert row.payload.flags.c_contiguous
    assert row.shape_key == (*expected.shape, dtype)
    np.testing.assert_allclose(row.payload, expected, atol=tolerance)


def test_uint8_gives_the_pixels_as_they_are():
    spec = ImageInput(32, 64, dtype="uint8", mean=(9.0, 9.0, 9.0))
    payload = pixels(encoded(red_and_blue()), spec)
    assert payload.flags.c_contiguous
    np.testing.assert_array_equal(payload, np.asarray(red_and_blue()).transpose(2, 0, 1))


def test_the_row_can_be_written_to_and_belongs_to_nobody_else():
    spec = ImageInput(32, 64, layout="NHWC", dtype="uint8")
    first, second = prepare(spec, [encoded(red_and_blue())] * 2, LIMITS)
    assert not np.shares_memory(first.payload, second.payload)


def test_a_missing_pillow_is_told_at_the_start_with_the_extra_that_brings_it(monkeypatch):
    image.require()
    monkeypatch.setitem(sys.modules, "service.inputs.picture", None)
    with pytest.raises(MissingDependencyError, match=r"jitney\[images\]"):
        image.require()
