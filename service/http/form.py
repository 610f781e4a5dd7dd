"""The parts of a `multipart/form-data` body, in the order in which they were sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Event, Field, File, MultipartDecoder, NeedData, State

from service.errors import MalformedBody, TooLarge

# The head of a part names the field and the file, in some 150 bytes. The longest that is read, and the longest mean
# over as many parts as there may be.
MAX_HEAD_BYTES = 8 * 1024
MEAN_HEAD_BYTES = 512

_PIECE_BYTES = 16 * 1024
_BEFORE_CONTENT = (State.PREAMBLE, State.PART)


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
    head: Field | File | None = None
    content: list[bytes] = []
    for event in _events(data, boundary, max_parts):
        if isinstance(event, Field | File):
            head, content = event, []
        elif isinstance(event, Data) and head is not None:
            content.append(event.data)
            if not event.more_data:
                # A part without a name has None for it, whatever the annotation says.
                yield Part(head.name or "", isinstance(head, File), b"".join(content))


def _events(data: bytes, boundary: str, max_parts: int) -> Iterator[Event]:
    """What the decoder finds, fed so slowly that no head costs more than it may; else it raises MalformedBody.

    A byte of a head costs the decoder a thousand times what a byte of a file does.
    """
    if not boundary:
        raise ValueError("no boundary")
    decoder = MultipartDecoder(boundary.encode("latin-1"), max_parts=max_parts)
    pieces = (data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES))
    heads_left_bytes = max_parts * MEAN_HEAD_BYTES
    while True:
        before_bytes = len(decoder.buffer)
        event = decoder.next_event()
        head_bytes = before_bytes - len(decoder.buffer)
        if isinstance(event, NeedData):
            if decoder.state in _BEFORE_CONTENT and before_bytes > MAX_HEAD_BYTES:
                raise _too_long()
            decoder.receive_data(next(pieces, None))
        elif isinstance(event, Epilogue):
            return
        else:
            if isinstance(event, Field | File):
                heads_left_bytes -= head_bytes
                if head_bytes > MAX_HEAD_BYTES or heads_left_bytes < 0:
                    raise _too_long()
            yield event


def _too_long() -> MalformedBody:
    return MalformedBody(
        f"the head of a part of the form is too long: at most {MAX_HEAD_BYTES} bytes, and {MEAN_HEAD_BYTES} on average"
    )
