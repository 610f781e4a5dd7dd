"""What can be told of a request from the bytes that have come so far, before anybody has parsed it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from service.probe_paths import PROBE_PATHS

# How much of a request is looked at here. *Source:* the largest head that nginx sends on unless it is told otherwise.
MAX_HEAD_BYTES = 8 * 1024

_ENDS = (b"\r\n\r\n", b"\n\n")
_METHODS = frozenset({b"GET", b"HEAD"})
_PATHS = tuple(path.encode("ascii") for path in PROBE_PATHS)
_HOST = re.compile(r"https?://[^/]*", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"^x-request-id:[ \t]*([^\r\n]*?)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Head:
    """What a client has said of its request, be that true or not; empty where it has not."""

    method: str = ""
    path: str = ""
    request_id: str = ""


def asks_for_probe(arrived: bytes) -> bool:
    """Whether the request line looks like a probe's, wherever the app is mounted.

    A guess that decides over the thread alone: what the path really is, the app finds out.
    """
    method, _, rest = arrived.partition(b"\n")[0].partition(b" ")
    target = rest.partition(b" ")[0]
    return method in _METHODS and target.partition(b"?")[0].endswith(_PATHS)


def head_of(arrived: bytes) -> Head:
    """What is said at the front of `arrived`, which need be no HTTP."""
    end = min((place for end in _ENDS if (place := arrived.find(end)) >= 0), default=len(arrived))
    line, _, fields = arrived[:end].partition(b"\n")
    method, _, target = line.decode("latin-1").strip("\r").partition(" ")
    path = _HOST.sub("", target.partition(" ")[0].partition("?")[0], count=1)
    named = _REQUEST_ID.search(fields)
    return Head(method, path, "" if named is None else named[1].decode("latin-1"))
