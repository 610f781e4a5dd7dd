"""A body in its two parts: the JSON in front, the binary data of the tensors behind it.

*Source:* the binary tensor data extension of the protocol. Bodies are split after they have been decompressed.
"""

from __future__ import annotations

import re

from service.errors import MalformedBody

# Its value: how many bytes at the front are JSON. Without it all of them are.
HEADER_LENGTH = "Inference-Header-Content-Length"

# More digits than the length of any body has.
_LENGTH = re.compile(r"[0-9]{1,15}")


def split(body: bytes, header_length: str | None) -> tuple[bytes, memoryview]:
    """The JSON and the binary data of `body`; raises MalformedBody for a length that cannot be."""
    if header_length is None:
        return body, memoryview(b"")
    text = header_length.strip()
    if not _LENGTH.fullmatch(text) or int(text) > len(body):
        raise MalformedBody(f"{HEADER_LENGTH} must be a whole number from 0 to the {len(body)} bytes of the body")
    length = int(text)
    head = body[:length]
    if head and not head.rstrip().endswith(b"}"):
        raise MalformedBody(f"the JSON of the body does not end where {HEADER_LENGTH} says that it ends")
    return head, memoryview(body)[length:]


class BinaryData:
    """The binary data of one request, given out tensor by tensor in the order in which they are declared."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._taken = 0

    def take(self, size_bytes: int) -> memoryview:
        """The next `size_bytes`; raises MalformedBody when fewer are left."""
        left = len(self._data) - self._taken
        if size_bytes > left:
            raise MalformedBody(
                f"the binary data ends early: {size_bytes} bytes are declared where {left} are left after the JSON, "
                f"whose length {HEADER_LENGTH} gives"
            )
        part = self._data[self._taken : self._taken + size_bytes]
        self._taken += size_bytes
        return part

    def finish(self) -> None:
        """Raise MalformedBody when there are bytes that no tensor has taken."""
        left = len(self._data) - self._taken
        if left:
            raise MalformedBody(f"{left} bytes of binary data follow that belong to no input")
