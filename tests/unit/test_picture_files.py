"""Which files are pictures, and which are refused, before a model gets anything of them."""

from __future__ import annotations

import base64
import contextlib
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from support.pictures import ALL_TYPES, LIMITS, RAW, encoded, exif, noise, pixels, red_and_blue, smooth

from service.errors import InvalidInput, JitneyError, TooLarge, UnsupportedMedia
from service.inputs import InputLimits, png, prepare

# Pillow warns of a faulty file and reads on, unless warnings are errors: here it must behave as it does in a server.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")


# --- from the request to bytes ---------------------------------------------------------------------------------


def test_bytes_and_base64_give_the_same_picture():
    data = encoded(red_and_blue())
    np.testing.assert_array_equal(pixels(data), pixels({"b64": base64.b64encode(data).decode()}))
    np.testing.assert_array_equal(pixels(data), np.asarray(red_and_blue()))


@pytest.mark.parametrize(
    "written",
    [
        lambda text: "data:image/png;base64," + text,
        lambda text: "DATA:;BASE64," + text,
        lambda text: "\r\n".join(text[i : i + 76] for i in range(0, len(text), 76)) + "\n",
        lambda text: text.rstrip("="),
    ],
)
def test_base64_may_have_a_prefix_line_breaks_and_no_padding(written):
    for width in (3, 4, 5):  # sizes whose base64 ends differently
        data = encoded(noise(width, 2))
        text = base64.b64encode(data).decode()
        np.testing.assert_array_equal(pixels({"b64": written(text)}), pixels(data))


@pytest.mark.parametrize(
    "text, word",
    [
        ("", "empty"),
        ("\n", "empty"),
        ("====", "empty"),
        ("data:image/png;base64,", "empty"),
        ("ab cd", "spaces"),
        ("ab-_", "url-safe"),
        ("äöü", "ASCII"),
        ("a", "not base64"),
        ("ab!d", "not base64"),
        ("ab=d", "not base64"),
        ("http://example.org/a.png", "not base64"),
        (base64.b64encode(base64.b64encode(b"\x89PNG\r\n\x1a\n" * 4)).decode(), "twice"),
        (5, "must be a string, not a number"),
        (None, "must be a string, not null"),
    ],
)
def test_faulty_base64_is_refused_with_its_reason(text, word):
    with pytest.raises(InvalidInput, match=word) as caught:
        pixels({"b64": text})
    assert caught.value.faults[0].loc == "instances[0].b64"


@pytest.mark.parametrize("instance", [5, None, "abc", [1], {}, {"b64": "QUJD", "name": "x"}, {"data": "QUJD"}])
def test_an_instance_that_is_no_picture_is_refused_where_it_stands(instance):
    with pytest.raises(InvalidInput, match="b64") as caught:
        prepare(RAW, [encoded(red_and_blue()), instance], LIMITS)
    assert caught.value.faults[0].loc == "instances[1]"


# --- what is decoded, and what is not --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_every_type_is_decoded_to_the_same_picture(kind):
    options = {"quality": 100} | (
        {"subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    )
    difference = pixels(encoded(red_and_blue(), kind, **options)).astype(int) - np.asarray(red_and_blue())
    assert abs(difference).max() <= (60 if kind == "JPEG" else 0)
    assert abs(difference).mean() < 1


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF-1.7\n",
        b"<!doctype html><p>",
        b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        b"\x00",
        b"\0\0\1\0\1\0",
        encoded(red_and_blue(), "PPM"),
        b"RIFF\0\0\0\0WAVEfmt ",
    ],
)
def test_what_is_no_picture_of_a_known_type_is_refused_with_the_types(data):
    with pytest.raises(UnsupportedMedia, match=r"instances\[0\].*JPEG, PNG, WebP, GIF, BMP or TIFF"):
        pixels(data)


def test_an_empty_file_is_refused():
    with pytest.raises(InvalidInput, match="empty"):
        pixels(b"")


@pytest.mark.parametrize("kind", ALL_TYPES)
@pytest.mark.parametrize("keep", [0.02, 0.2, 0.5, 0.9])
def test_a_truncated_file_is_refused(kind, keep):
    data = encoded(noise(64, 64), kind)
    with pytest.raises(InvalidInput, match="truncated or corrupt image"):
        pixels(data[: max(12, int(len(data) * keep))])


@pytest.mark.parametrize("kind", ALL_TYPES)
@pytest.mark.parametrize("picture", [noise(64, 64), smooth(90, 60)])
def test_a_file_without_its_last_ten_bytes_is_refused(kind, picture):
    with pytest.raises(InvalidInput, match="truncated or corrupt image"):
        pixels(encoded(picture, kind)[:-10])


@pytest.mark.parametrize("missing", [1, 4, 12, 20, 24])
def test_a_png_without_its_end_is_refused(missing):
    with pytest.raises(InvalidInput, match="truncated or corrupt image"):
        pixels(encoded(smooth(90, 60))[:-missing])


@pytest.mark.parametrize("name", [b"IHDR", b"tEXt", b"IDAT", b"IEND"])
def test_a_png_with_a_wrong_checksum_of_any_chunk_is_refused(name):
    info = PngInfo()
    info.add_text("a", "b")
    data = bytearray(encoded(smooth(90, 60), pnginfo=info))
    start = data.index(name) - 4
    data[start + 8 + int.from_bytes(data[start : start + 4])] ^= 1  # the pixels themselves are whole
    with pytest.raises(InvalidInput, match="truncated or corrupt image"):
        pixels(bytes(data))


def test_what_follows_the_end_of_a_png_does_not_count():
    np.testing.assert_array_equal(pixels(encoded(red_and_blue()) + b"\0" * 9), np.asarray(red_and_blue()))


def test_a_png_of_very_many_chunks_is_refused_before_they_cost_time():
    data = encoded(red_and_blue())
    empty = struct.pack(">I4sI", 0, b"IDAT", zlib.crc32(b"IDAT"))
    with pytest.raises(InvalidInput, match="truncated or corrupt image"):
        pixels(data[:-12] + empty * png.MAX_CHUNKS + data[-12:])


def test_a_jpeg_without_its_last_bytes_and_a_png_with_a_wrong_checksum_are_refused():
    jpeg, damaged = encoded(noise(64, 64), "JPEG"), bytearray(encoded(noise(64, 64)))
    damaged[damaged.index(b"IDAT") + 20] ^= 0xFF
    for data in (jpeg[:-10], bytes(damaged)):
        with pytest.raises(InvalidInput, match="truncated or corrupt image"):
            pixels(data)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([encoded(noise(9, 7), kind) for kind in ALL_TYPES] + [encoded(noise(9, 7), exif=exif(6))]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    st.binary(max_size=8),
)
def test_a_damaged_file_is_a_picture_or_a_refusal(data, damage, tail):
    broken = bytearray(data)
    for position, value in damage:
        broken[position % len(broken)] = value
    with contextlib.suppress(JitneyError):
        assert pixels(bytes(broken) + tail).shape == (32, 64, 3)


@settings(deadline=None)
@given(
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"RIFF\0\0\0\0WEBP"]),
    st.binary(),
)
def test_random_bytes_are_a_refusal(head, tail):
    with contextlib.suppress(JitneyError):
        pixels(head + tail)


# --- limits ----------------------------------------------------------------------------------------------------


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has no pixels: decoding it would fail, so a limit must speak first."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    idat = b"IDAT" + zlib.compress(b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in (body, idat)
    )


@pytest.mark.parametrize("size", [(5000, 4001), (10_000, 10_000), (60_000, 60_000), (2**31 - 1, 1)])
def test_too_many_pixels_are_refused_from_the_header_by_the_name_of_the_setting(size):
    seen = size[0] * size[1]
    with pytest.raises(
        TooLarge, match=rf"of instances\[0\], {seen}, is over the limit of .*MAX_IMAGE_PIXELS"
    ) as caught:
        pixels(png_header(*size))
    assert caught.value.limit == LIMITS.max_image_pixels


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_too_many_pixels_are_refused_also_where_pillow_only_warns():
    with pytest.raises(TooLarge, match="MAX_IMAGE_PIXELS"):
        pixels(png_header(10_000, 10_000))


def test_a_picture_of_exactly_the_limit_is_accepted():
    limits = InputLimits(max_image_pixels=64 * 32, max_text_chars=1)
    assert pixels(encoded(red_and_blue()), limits=limits).shape == (32, 64, 3)
    with pytest.raises(TooLarge):
        pixels(encoded(red_and_blue(65, 32)), limits=limits)


def test_a_limit_above_pillows_own_is_the_one_that_counts(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert pixels(encoded(red_and_blue()), limits=InputLimits(5000, 1)).shape == (32, 64, 3)
    with pytest.raises(TooLarge, match="limit of 5000"):
        pixels(encoded(red_and_blue(200, 200)), limits=InputLimits(5000, 1))


def test_pillows_own_limit_is_never_lowered_or_lifted(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    pixels(encoded(red_and_blue()), limits=InputLimits(5000, 1))
    assert Image.MAX_IMAGE_PIXELS == 10_000
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    pixels(encoded(red_and_blue()))
    assert Image.MAX_IMAGE_PIXELS is None


def test_a_side_longer_than_any_jpeg_is_refused():
    with pytest.raises(InvalidInput, match="65535"):
        pixels(png_header(70_000, 2))
