"""The HTTP client of the load: geventhttpclient, which of those tried costs the least CPU per request.

Microseconds per request at 32 connections, against a server that answers with a constant (2026-11-29, two cores,
Python 3.11): geventhttpclient 156-230, http.client in threads 169-252, aiohttp 294-309, urllib3 in threads 425-463,
requests 1,076-1,564, httpx 3,027-4,189. What the load costs, the server on the same machine does not have.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from http.client import HTTPException
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

from service.bench.bodies import Body
from service.bench.errors import BadAddress, BenchUnavailable, TooFewFiles
from service.server.open_files import allow_open_files

# Below the 1024 files that select(), by which the client library looks at a connection, can tell apart.
MAX_CONNECTIONS = 900

# What else this process has open.
_OTHER_FILES = 64

# A whole request may take this much longer than its longest silence. The socket's own limit so comes first: when a send
# is broken off from outside, the client library never gives the connection's place back.
_WHOLE_SHARE, _WHOLE_MORE_S = 1.1, 1.0

Answer = tuple[str, bytes]
"""How a request ended, a status or the kind of failure in a word; and the body of the answer."""


class Client:
    """Asks one server over connections that are kept open. A context manager.

    url: of the server, or of a predict route other than `/predict`. timeout_s: how long a server may keep silent; a
    request as a whole may take a tenth and a second longer. Raises BadAddress, BenchUnavailable and TooFewFiles.

    *Thread:* the one that made it; its greenlets may call it at once.
    """

    def __init__(
        self, url: str, *, connections: int, timeout_s: float = 60.0, headers: Mapping[str, str] | None = None
    ) -> None:
        try:
            from gevent import Timeout
            from geventhttpclient import HTTPClient
        except ImportError:
            raise BenchUnavailable("pip install 'jitney[bench]' brings what putting load on a server needs") from None
        parts = _address(url)
        assert parts.hostname is not None, "an address has a host"
        self.host, self.port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path if parts.path not in ("", "/") else "/predict"
        if parts.query:
            self._path += f"?{parts.query}"
        self.connections = min(connections, MAX_CONNECTIONS)
        files = allow_open_files(self.connections + _OTHER_FILES)
        if files < self.connections + _OTHER_FILES:
            raise TooFewFiles(
                f"{self.connections} connections need {self.connections + _OTHER_FILES} open files, and this process "
                f"may have {files} (ulimit -n)"
            )
        self.timeout_s, self._timeout = timeout_s, Timeout
        self._http = HTTPClient.from_url(
            f"{parts.scheme}://{parts.netloc}",
            concurrency=self.connections,
            connection_timeout=timeout_s,
            network_timeout=timeout_s,
            headers={"User-Agent": "jitney-bench", **(headers or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def predict(self, body: Body) -> Answer:
        """Ask for a prediction; never raises."""
        return self._ask("POST", self._path, body.payload, {"Content-Type": body.content_type})

    def get(self, path: str) -> Answer:
        """Ask for a page; never raises."""
        return self._ask("GET", path, b"", {})

    def _ask(self, method: str, path: str, payload: bytes, headers: dict[str, str]) -> Answer:
        limit = self._timeout(_WHOLE_SHARE * self.timeout_s + _WHOLE_MORE_S)
        limit.start()
        try:
            response: Any = self._http.request(method, path, payload, headers)
            return str(response.status_code), response.read()
        except self._timeout as expired:
            if expired is not limit:
                raise
            return "timeout", b""
        except TimeoutError:
            return "timeout", b""
        except ConnectionRefusedError:
            return "refused", b""
        except (OSError, HTTPException):  # the second: what came back is not HTTP, or ends too early
            return "connection lost", b""
        finally:
            limit.close()


def _address(url: str) -> SplitResult:
    """The parts of a URL that a request can be sent to. Raises BadAddress."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:  # a port that is none, half an IPv6 address, a name with a part too long
        host, port = "", None
    if not host or parts.scheme not in ("http", "https") or port == 0 or not host.isprintable() or " " in host:
        raise BadAddress("the URL must be the address of a server, e.g. http://127.0.0.1:8000 or http://[::1]:8000")
    if parts.username is not None:
        raise BadAddress("the URL must hold no user and password: send them with a --header Authorization")
    target = f"{parts.path}?{parts.query}"
    if parts.path.startswith("//") or not target.isascii() or not target.isprintable() or " " in target:
        raise BadAddress("the path of the URL must begin with one slash, and be percent-encoded")
    return parts


def is_local(host: str) -> bool:
    """Whether `host` is an address of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)  # only addresses of this machine can be bound
    except OSError:
        return False
    return True
