"""A body that comes in chunks, refused for the size that these declare, as gunicorn's reader of it finds them."""

from __future__ import annotations

from typing import Any


class ChunksTooLarge(Exception):
    """The chunks of a body declare more bytes than are taken."""


def limit_chunks(stream: Any, max_bytes: int) -> None:
    """Have the reading of `stream` raise ChunksTooLarge where the next chunk declares a byte too many.

    Nothing of that chunk need have come, and nothing of it is waited for. A body of known length, and one of another
    server, is left as it is. To be called before anything is read.
    """
    reader = getattr(stream, "reader", None)
    parse_size = getattr(reader, "parse_chunk_size", None)
    if reader is None or parse_size is None:
        return
    left_bytes = max_bytes

    def parse(*args: Any, **kwargs: Any) -> Any:
        nonlocal left_bytes
        size, rest = parse_size(*args, **kwargs)
        left_bytes -= size
        if left_bytes < 0:
            raise ChunksTooLarge
        return size, rest

    reader.parse_chunk_size = parse
