"""The parts of a `multipart/form-data` body, in the order in which they were sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder

from service.errors import MalformedBody, TooLarge


@dataclass(frozen=True, slots=True)
class Part:
    """One part. `has_filename`: it was sent as a file; both kinds may hold any bytes."""

    name: str
    has_filename: bool
    content: bytes


def read_parts(data: bytes, boundary: str, *, max_parts: int, max_files: int) -> list[Part]:
    """All parts of the body `data`.

    Raises MalformedBody for what is no form, TooLarge for more than `max_parts`; the message speaks of `max_files`,
    which MAX_INSTANCES sets.
    """
    try:
        return list(_parts(data, boundary, max_parts))
    except RequestEntityTooLarge:
        raise TooLarge("the number of parts of the form", max_files, "MAX_INSTANCES") from None
    except ValueError as error:
        raise MalformedBody("the form could not be parsed") from error


def _parts(data: bytes, boundary: str, max_parts: int) -> Iterator[Part]:
    if not boundary:
        raise ValueError("no boundary")
    decoder = MultipartDecoder(boundary.encode("latin-1"), max_parts=max_parts)
    decoder.receive_data(data)
    decoder.receive_data(None)
    head: Field | File | None = None
    content: list[bytes] = []
    while not isinstance(event := decoder.next_event(), Epilogue):
        if isinstance(event, Field | File):
            head, content = event, []
        elif isinstance(event, Data) and head is not None:
            content.append(event.data)
            if not event.more_data:
                # A part without a name has None for it, whatever the annotation says.
                yield Part(head.name or "", isinstance(head, File), b"".join(content))
