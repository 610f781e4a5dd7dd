"""Protocol Buffers read field by field, without a package for it and without reading what is skipped.

*Source:* the Protocol Buffers encoding guide.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def fields(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int | slice]]:
    """Every field of the message between two offsets: its number, and an integer or where its bytes lie.

    Numbers of fixed size are passed over. Raises IndexError or ValueError where the data are no message.
    """
    while position < end:
        tag, position = varint(data, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, position = varint(data, position)
            yield tag >> 3, value
        elif wire_type == _LENGTH:
            size, position = varint(data, position)
            if position + size > end:
                raise ValueError("a field is longer than the message around it")
            yield tag >> 3, slice(position, position + size)
            position += size
        elif wire_type in {_FIXED64, _FIXED32}:
            position += 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"{wire_type} is not a wire type")


def varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    """The integer at an offset, without a sign, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")


def integers(data: mmap.mmap, value: int | slice) -> Iterator[int]:
    """The signed integers of a repeated field, whether it is packed or not."""
    if isinstance(value, int):
        yield _signed(value)
        return
    position = value.start
    while position < value.stop:
        number, position = varint(data, position)
        yield _signed(number)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
