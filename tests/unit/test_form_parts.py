from __future__ import annotations

import time

import pytest

from service.errors import MalformedBody, TooLarge
from service.http.form import MAX_HEAD_BYTES, MEAN_HEAD_BYTES, Part, read_parts

HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x.png"\r\n'
TAIL = b"\r\n--b--\r\n"


def read(data: bytes, max_parts: int = 100) -> list[Part]:
    return read_parts(data, "b", max_parts=max_parts, max_files=max_parts)


@pytest.mark.parametrize("content", [b"", b"x", b"\r\n--", b"\r", b"a--b", bytes(range(256)), b"\r\n" * 300], ids=ascii)
@pytest.mark.parametrize("shift", range(-8, 9))
def test_content_is_kept_wherever_the_decoder_is_fed_on(content, shift):
    """What looks like a boundary lies around the place where one piece ends and the next begins."""
    long = b"y" * (16 * 1024 - len(HEAD) - 2 + shift) + content
    both = HEAD + b"\r\n" + long + b"\r\n" + HEAD + b"\r\n" + content + TAIL
    assert [part.content for part in read(both)] == [long, content]


@pytest.mark.parametrize(
    "more",
    [b"X-A: b\r\n", b"X-A: b\r\n b", b"X" * 8, b'X-A: "\\"', b"\0" * 8],
    ids=["headers", "folded", "no line", "quotes", "zeros"],
)
def test_a_head_without_measure_is_refused_at_once(more):
    body = HEAD + more * 1_000_000 + b"\r\n\r\nx" + TAIL
    began = time.process_time()
    with pytest.raises(MalformedBody, match=f"at most {MAX_HEAD_BYTES} bytes"):
        read(body)
    assert time.process_time() - began < 0.5


def test_options_of_a_field_without_measure_are_refused_too():
    body = b"--b\r\nContent-Disposition: form-data; " + b"a=b;" * (MAX_HEAD_BYTES // 4) + b"\r\n\r\nx" + TAIL
    with pytest.raises(MalformedBody, match="too long"):
        read(body)


def test_what_stands_before_the_first_part_has_a_measure():
    assert read(b"hello\r\n" + HEAD + b"\r\nx" + TAIL)[0].content == b"x"
    with pytest.raises(MalformedBody, match="too long"):
        read(b"\r\n-" * 100_000 + b"\r\n" + HEAD + b"\r\nx" + TAIL)


def test_many_long_heads_are_refused_together():
    long = HEAD + b"X-A: " + b"b" * 4000 + b"\r\n\r\nx\r\n"
    fit = 100 * MEAN_HEAD_BYTES // len(long)
    assert len(read(long * fit + b"--b--\r\n")) == fit
    with pytest.raises(MalformedBody, match=f"{MEAN_HEAD_BYTES} on average"):
        read(long * (fit + 1) + b"--b--\r\n")


def test_one_part_too_many_names_the_setting():
    part = HEAD + b"\r\nx\r\n"
    assert len(read(part * 3 + b"--b--\r\n", max_parts=3)) == 3
    with pytest.raises(TooLarge, match="MAX_INSTANCES"):
        read(part * 4 + b"--b--\r\n", max_parts=3)


@pytest.mark.parametrize(
    "data", [b"", b"--b", b"--b\r\n", HEAD, HEAD + b"\r\n", HEAD + b"\r\nx\r\n--b", b"\r\n" + TAIL[:-4]]
)
def test_a_form_that_ends_early_is_malformed(data):
    with pytest.raises(MalformedBody):
        read(data)
