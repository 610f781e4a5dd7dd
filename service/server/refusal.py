"""Answers to what never gets to the app, in place of gunicorn's error pages and in the form of every other error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from service.protocol_paths import is_of_protocol
from service.request_id import accepted_id, new_id
from service.server.request_head import Head

_DETAILS = {
    404: "there is nothing at this path",
    408: "the request did not come to its end in the time of a request (REQUEST_TIMEOUT_MS)",
    414: "the request line is longer than is taken here",
    417: "the expectation in the header Expect cannot be met here",
    431: "the headers are more, or one is longer, than is taken here",
    503: "too many bodies are on their way, and no more may be kept in memory until they are whole (MAX_BODY_BYTES)",
    501: "the Transfer-Encoding is none that is taken here; chunked is, and no other",
}


class Muted:
    """Stands in for the log: what gunicorn says of a request may hold its path, its query or a header.

    access: that of the log itself, which speaks only where somebody has asked for all that.
    """

    def __init__(self, access: Callable[..., None]) -> None:
        self.access = access

    def warning(self, *_: object) -> None:
        """Say nothing."""

    exception = debug = warning


class Captured:
    """Stands in for a socket, to learn what would be written to it."""

    def __init__(self) -> None:
        self.written = b""

    def gettimeout(self) -> float:
        return 0.0

    def sendall(self, data: bytes) -> None:
        self.written += data


@dataclass(frozen=True, slots=True)
class Refusal:
    """`data`: all that is sent, the head of the answer and its body, which an answer to HEAD has not."""

    status: int
    title: str
    request_id: str
    data: bytes


def status_of(html_answer: bytes) -> int:
    """The status of gunicorn's own error page."""
    status_line = html_answer.partition(b"\r\n")[0].decode("latin-1")
    return int(status_line.split(" ")[1]) if status_line.count(" ") >= 2 else 500


def refusal(status: int, head: Head, prefix: str = "") -> Refusal:
    """The answer with this status, without what was wrong in detail, in the form of the protocol that was asked for.

    head: what is known of the request. prefix: the path under which the app is mounted.
    """
    title = HTTPStatus(status).phrase
    request_id = accepted_id(head.request_id) or new_id()
    general = (
        "this is no HTTP request that can be answered here" if status < 500 else "the service failed on this request"
    )
    detail = _DETAILS.get(status, general)
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail, "request_id": request_id}
    media_type, document = "application/problem+json", problem
    if is_of_protocol(head.path.removeprefix(prefix)):
        media_type, document = "application/json", {"error": detail}
    body = orjson.dumps(document)
    lines = (
        f"HTTP/1.1 {status} {title}",
        "Connection: close",
        f"Content-Type: {media_type}",
        f"Content-Length: {len(body)}",
        f"X-Request-ID: {request_id}",
        *(("Retry-After: 1",) if status == 503 else ()),
    )
    sent = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + (b"" if head.method == "HEAD" else body)
    return Refusal(status, title, request_id, sent)
