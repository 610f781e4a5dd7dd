"""The chunks of a PNG file: whether they are whole.

Pillow stops reading as soon as it has its pixels, and skips the checksums of the data that they come from.
"""

from __future__ import annotations

import zlib

_SIGNATURE_BYTES = 8

# A chunk: length and name of 4 bytes each, the data, a checksum of 4 bytes. Source: RFC 2083, section 3.2.
_HEAD_BYTES, _CHECKSUM_BYTES = 8, 4

# Encoders write chunks of 8 KiB and more; with far smaller ones a file is made to cost time.
MAX_CHUNKS = 65_536


def is_whole(data: bytes) -> bool:
    """Whether every chunk up to the end mark is there and has the checksum that it states.

    What follows the end mark does not count. The cost is one checksum over the file.
    """
    view = memoryview(data)
    at = _SIGNATURE_BYTES
    for _ in range(MAX_CHUNKS):
        end = at + _HEAD_BYTES + int.from_bytes(view[at : at + 4])
        if end + _CHECKSUM_BYTES > len(data):
            return False
        if zlib.crc32(view[at + 4 : end]) != int.from_bytes(view[end : end + _CHECKSUM_BYTES]):
            return False
        if data[at + 4 : at + _HEAD_BYTES] == b"IEND":
            return True
        at = end + _CHECKSUM_BYTES
    return False
