"""The body of a request as bytes: within its limit, whole, and without the encoding it was sent in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge

from service.chunk_limit import ChunksTooLarge, limit_chunks
from service.errors import JitneyError, MalformedBody, TooLarge
from service.http.encodings import decompressed, encoding_of
from service.settings import Settings

_CHUNK_BYTES = 64 * 1024

# What a request of Werkzeug has in its dictionary once its body has been read.
_READ_ALREADY = frozenset({"_cached_data", "form", "stream"})

# No length has more digits, and of some thousands Python makes no number.
_MOST_DIGITS = 18


def read_body(request: Request, settings: Settings) -> bytes:
    """All of the body; MAX_BODY_BYTES bounds both what is sent and what that opens to.

    Raises UnsupportedEncoding before anything is read, TooLarge as soon as that is known, or MalformedBody.
    """
    environ = request.environ
    encoding = encoding_of(environ.get("HTTP_CONTENT_ENCODING", ""))
    if request.__dict__.keys() & _READ_ALREADY:
        return _as_kept(request, encoding, settings.max_body_bytes)
    if encoding == "identity" and (length := known_length(environ, settings.max_body_bytes)) is not None:
        return read_whole(environ["wsgi.input"], length)
    # Of a body of unknown length Werkzeug refuses the read behind the last byte that is allowed, whether or not there
    # is more: with one byte on top, a body that just fits has its end before that.
    most = settings.max_body_bytes
    request.max_content_length = most + 1
    limit_chunks(environ["wsgi.input"], most)
    try:
        sent = _sent(request, most)
        return b"".join(sent) if encoding == "identity" else decompressed(sent, encoding, most)
    except (RequestEntityTooLarge, ChunksTooLarge):
        raise _too_large(most) from None
    except JitneyError:
        raise
    except Exception as error:
        # The HTTP server raises its own exceptions for a broken chunk or a connection that ended early.
        raise MalformedBody("the body could not be read to its end") from error


def _as_kept(request: Request, encoding: str, max_bytes: int) -> bytes:
    """The body where a hook of the application has read it before: Flask keeps it, unless it was read as a form."""
    kept = request.get_data()
    if not kept and request.content_length != 0 and "form" in request.__dict__:
        raise MalformedBody(
            "another part of the application has read the body as a form; it can be read as bytes, by get_data() or "
            "get_json(), and still be answered here"
        )
    if len(kept) > max_bytes:
        raise _too_large(max_bytes)
    return kept if encoding == "identity" else decompressed([kept], encoding, max_bytes)


def known_length(environ: dict[str, Any], max_bytes: int) -> int | None:
    """How long the body is, in bytes; None where that is not told, or is more than is read."""
    text = environ.get("CONTENT_LENGTH", "")
    length = int(text) if text.isdecimal() and text.isascii() and len(text) <= _MOST_DIGITS else None
    return None if length is None or length > max_bytes else length


def read_whole(stream: IO[bytes], length: int) -> bytes:
    """What most bodies are, read without the wrappers that the others need; raises MalformedBody."""
    try:
        data = stream.read(length)
        while len(data) < length and (more := stream.read(length - len(data))):
            data += more
    except Exception as error:
        raise MalformedBody("the body could not be read to its end") from error
    if len(data) < length:
        raise MalformedBody("the body could not be read to its end")
    return data


def _sent(request: Request, max_bytes: int) -> Iterator[bytes]:
    """The body in pieces, as it comes."""
    if (request.content_length or 0) > max_bytes:
        raise _too_large(max_bytes)
    stream = request.stream
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge("the request body, in bytes,", max_bytes, "MAX_BODY_BYTES")
