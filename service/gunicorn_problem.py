"""Gunicorn's own error pages, in the form that every other error has."""

from __future__ import annotations

from http import HTTPStatus

import orjson


class Captured:
    """Stands in for a socket, to learn what would be written to it."""

    def __init__(self) -> None:
        self.written = b""

    def gettimeout(self) -> float:
        return 0.0

    def sendall(self, data: bytes) -> None:
        self.written += data


def as_problem(html_answer: bytes) -> bytes:
    """Gunicorn's own error page as a problem document with the same status, and without what was wrong in detail."""
    status_line = html_answer.partition(b"\r\n")[0].decode("latin-1")
    code = int(status_line.split(" ")[1]) if status_line.count(" ") >= 2 else 500
    title = HTTPStatus(code).phrase
    detail = "this is no HTTP request that can be answered here" if code < 500 else "the service failed on this request"
    if code == HTTPStatus.NOT_FOUND:
        detail = "there is nothing at this path"
    body = orjson.dumps({"type": "about:blank", "title": title, "status": code, "detail": detail, "request_id": None})
    head = (
        f"HTTP/1.1 {code} {title}\r\nConnection: close\r\nContent-Type: application/problem+json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body
