from __future__ import annotations

import gzip
import tracemalloc
import zlib
from contextlib import suppress

import pytest

from service.errors import MalformedBody, TooLarge, UnsupportedEncoding
from service.http.encodings import decompressed, encoding_of

TEXT = b'{"instances": [[1, 2]]}' * 50


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED = [("gzip", gzip.compress(TEXT)), ("deflate", zlib.compress(TEXT)), ("deflate", raw_deflate(TEXT))]
packed = pytest.mark.parametrize("encoding, data", PACKED, ids=["gzip", "zlib", "raw deflate"])


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@packed
@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_what_was_packed_comes_out_however_it_arrives(encoding, data, size):
    assert decompressed(in_pieces(data, size), encoding, len(TEXT)) == TEXT


@pytest.mark.parametrize("level", range(10))
def test_deflate_is_understood_with_any_header_that_zlib_writes(level):
    assert decompressed([zlib.compress(TEXT, level)], "deflate", len(TEXT)) == TEXT


@packed
def test_nothing_but_an_empty_body_may_be_packed_too(encoding, data):
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding]
    assert decompressed([pack(b"")], encoding, 1) == b""


@packed
def test_the_limit_holds_for_what_comes_out_to_the_byte(encoding, data):
    with pytest.raises(TooLarge, match=rf"decompression.* {len(TEXT) - 1} \(MAX_BODY_BYTES\)"):
        decompressed([data], encoding, len(TEXT) - 1)


@packed
@pytest.mark.parametrize("left", [0, 1, 2, 10, -5, -1])
def test_a_body_that_ends_early_is_malformed(encoding, data, left):
    with pytest.raises(MalformedBody):
        decompressed([data[:left]], encoding, len(TEXT))


@packed
@pytest.mark.parametrize("more", [b"x", b"\0", gzip.compress(TEXT)], ids=["text", "zero", "member"])
@pytest.mark.parametrize("apart", [True, False])
def test_what_follows_the_end_of_the_data_is_malformed(encoding, data, more, apart):
    with pytest.raises(MalformedBody, match="behind the end"):
        decompressed([data, more] if apart else [data + more], encoding, 10 * len(TEXT))


@packed
def test_a_byte_that_changed_is_noticed(encoding, data):
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0xFF
        with suppress(MalformedBody):
            # Some bytes of gzip's header say nothing of the data, and raw deflate has no checksum.
            assert decompressed([bytes(broken)], encoding, 10**6) == TEXT or data == PACKED[2][1]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("data", [TEXT, b"\x1f\x8b", b"\0" * 100, zlib.compress(TEXT)[::-1]])
def test_what_was_never_packed_is_malformed(encoding, data):
    with pytest.raises(MalformedBody):
        decompressed([data], encoding, 10**6)


def test_a_bomb_is_opened_no_further_than_to_the_limit():
    bomb = gzip.compress(bytes(100_000_000))
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompressed([bomb], "gzip", 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "header, encoding",
    [("", "identity"), (" ", "identity"), ("Identity", "identity"), ("GZIP", "gzip"), ("x-gzip", "gzip"),
     (" deflate ", "deflate")],
)  # fmt: skip
def test_names_of_encodings_are_read_in_any_case(header, encoding):
    assert encoding_of(header) == encoding


@pytest.mark.parametrize(
    "header", ["br", "zstd", "compress", "gzip, gzip", "gzip,identity", "gzip;q=1", "é", "x-", "x-deflate"]
)
def test_an_encoding_that_is_not_known_is_refused_and_the_known_ones_are_told(header):
    with pytest.raises(UnsupportedEncoding) as caught:
        encoding_of(header)
    assert caught.value.allowed == ("gzip", "deflate", "identity")
