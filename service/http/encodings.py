"""Bodies that were compressed on their way: which encodings are taken, and how far one is opened."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from service.errors import MalformedBody, TooLarge, UnsupportedEncoding

# As `Accept-Encoding` of a refusal names them.
ACCEPTED = ("gzip", "deflate", "identity")

# How zlib is told what is around the compressed data.
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS

# So much comes out of the decompressor at a time, bytes.
_PIECE_BYTES = 256 * 1024


def encoding_of(content_encoding: str) -> str:
    """One of ACCEPTED, from the header of a request; raises UnsupportedEncoding.

    A body has one encoding: two around each other are a way to make little data open to very much.
    """
    name = content_encoding.strip().lower() or "identity"
    if name == "x-gzip":  # the same, in RFC 9110's words
        name = "gzip"
    if name not in ACCEPTED:
        raise UnsupportedEncoding(ACCEPTED)
    return name


def decompressed(chunks: Iterable[bytes], encoding: str, max_bytes: int) -> bytes:
    """All of a `gzip` or `deflate` body, opened as it comes, and no further than one byte beyond `max_bytes`.

    `deflate` is taken as the standard has it, inside zlib's format, and as some clients send it, without.
    Raises TooLarge, or MalformedBody for what is corrupt, ends early or goes on behind its end. A gzip file of several
    members goes on behind its first.
    """
    pieces: list[bytes] = []
    total_bytes = 0
    try:
        for piece in _pieces(iter(chunks), encoding):
            total_bytes += len(piece)
            if total_bytes > max_bytes:
                raise TooLarge("the request body, in bytes after decompression,", max_bytes, "MAX_BODY_BYTES")
            pieces.append(piece)
    except zlib.error as error:
        raise MalformedBody(f"the body is not what its Content-Encoding, {encoding}, says, or it is corrupt") from error
    return b"".join(pieces)


def _pieces(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    waiting = b""
    while len(waiting) < 2 and (chunk := next(chunks, b"")):
        waiting += chunk
    stream = zlib.decompressobj(_format(waiting, encoding))
    while not stream.eof:
        if not waiting and not (waiting := next(chunks, b"")):
            raise MalformedBody("the compressed body ends early")
        yield stream.decompress(waiting, _PIECE_BYTES)
        waiting = stream.unconsumed_tail
    if stream.unused_data or next(chunks, b""):
        raise MalformedBody("the body goes on behind the end of the compressed data")


def _format(head: bytes, encoding: str) -> int:
    if encoding == "gzip":
        return _GZIP
    # RFC 1950: the method 8 in the low half of the first byte, and both bytes together a multiple of 31.
    is_zlib = len(head) >= 2 and head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0
    return _ZLIB if is_zlib else _RAW
