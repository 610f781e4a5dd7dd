"""What can be told of a request from the bytes that have come so far, before anybody has parsed it."""

from __future__ import annotations

from service.probe_paths import PROBE_PATHS

# *Source:* the largest head that nginx takes and sends on unless it is told otherwise. What is longer is parsed as it
# comes.
MAX_HEAD_BYTES = 8 * 1024

_ENDS = (b"\r\n\r\n", b"\n\n")
_METHODS = frozenset({b"GET", b"HEAD"})
_PATHS = tuple(path.encode("ascii") for path in PROBE_PATHS)


def is_whole(arrived: bytes) -> bool:
    """Whether a thread that parses the head need not wait for more of it.

    True also for a head that is longer than MAX_HEAD_BYTES: the parser has its own limits and answers for them.
    """
    return len(arrived) >= MAX_HEAD_BYTES or any(end in arrived for end in _ENDS)


def asks_for_probe(arrived: bytes) -> bool:
    """Whether the request line looks like a probe's, wherever the app is mounted.

    A guess that decides over the thread alone: what the path really is, the app finds out.
    """
    method, _, rest = arrived.partition(b"\n")[0].partition(b" ")
    target = rest.partition(b" ")[0]
    return method in _METHODS and target.partition(b"?")[0].endswith(_PATHS)
