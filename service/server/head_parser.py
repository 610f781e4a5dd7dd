"""From the bytes of a head to WSGI variables, by gunicorn's C parser, for the requests that need nothing else."""

from __future__ import annotations

import re
from typing import Any

from gunicorn.http.message import DEFAULT_MAX_HEADERFIELD_SIZE, MAX_HEADERS, MAX_REQUEST_LINE, _ip_in_allow_list
from gunicorn.util import unquote_to_wsgi_str

from service.server.connection import Connection

# What gunicorn's own parser takes as the path and the query as they are; everything else is left to it.
_PLAIN_TARGET = re.compile(r"/(?:[!\"$-.0-~][!\"$-~]*)?")

# A length with more digits is one that nobody means.
_MOST_DIGITS = 15


class HeadParser:
    """Judges heads. It decides for itself what is plain, and leaves the verdict over the rest to gunicorn's parser.

    Plain: HTTP/1.1, a path with or without a query, a body of known length or none, no expectation, and nothing that
    two readers could understand in two ways. `max_head_bytes`: gunicorn takes no head that is longer.

    *Thread:* any; nothing is written.
    """

    def __init__(self, cfg: Any, script_name: str) -> None:
        # Not at the top: where it is missing another worker class serves, and this module is loaded all the same.
        import gunicorn_h1c

        self._parse = gunicorn_h1c.parse_to_wsgi_environ
        self._not_whole, self._no_request = gunicorn_h1c.IncompleteError, gunicorn_h1c.ParseError
        line: int = cfg.limit_request_line
        line = MAX_REQUEST_LINE if not 0 < line < MAX_REQUEST_LINE else line
        fields = cfg.limit_request_fields if 0 < cfg.limit_request_fields <= MAX_HEADERS else MAX_HEADERS
        size = cfg.limit_request_field_size if cfg.limit_request_field_size > 0 else DEFAULT_MAX_HEADERFIELD_SIZE
        self._limits = (line, fields, size)
        self.max_head_bytes = fields * (size + 2) + 4 + line
        self._script_name = script_name
        self._cfg = cfg
        self._scheme_headers = tuple(
            ("HTTP_" + name.replace("-", "_"), value) for name, value in cfg.secure_scheme_headers.items()
        )

    def is_trusted(self, client: Any) -> bool:
        """Whether a client with this address may say by which scheme the service was reached, as gunicorn has it."""
        if not isinstance(client, tuple):
            return True
        return bool(_ip_in_allow_list(client[0], self._cfg.forwarded_allow_ips, self._cfg.forwarded_allow_networks()))

    def judge(self, conn: Connection) -> bool:
        """Learn what `conn.arrived` says; False where its head is not whole yet."""
        try:
            environ: dict[str, Any] = self._parse(conn.arrived, None, None, "http", *self._limits)
        except self._not_whole:
            return False
        except self._no_request:
            conn.head_bytes = conn.needed_bytes = len(conn.arrived)
            return True
        conn.head_bytes = head_bytes = environ.pop("_consumed")
        length = _body_bytes(environ)
        conn.needed_bytes = None if length is None else head_bytes + length
        conn.is_plain = length is not None and self._complete(environ, conn)
        conn.environ = environ
        return True

    def _complete(self, environ: dict[str, Any], conn: Connection) -> bool:
        """Add what the C parser does not tell; False where the request is not plain."""
        if "HTTP_EXPECT" in environ or environ["SERVER_PROTOCOL"] != "HTTP/1.1":
            return False
        connection = environ.get("HTTP_CONNECTION")
        if connection is not None and connection.lower() not in ("keep-alive", "close"):
            return False
        method: str = environ["REQUEST_METHOD"]
        start = len(method) + 1
        target = conn.arrived[start : conn.arrived.find(b" ", start)].decode("latin-1")
        if method == "CONNECT" or _PLAIN_TARGET.fullmatch(target) is None:
            return False
        environ.update(conn.base)
        environ["RAW_URI"] = target
        return (
            self._place_path(environ)
            and (not conn.is_trusted or self._place_scheme(environ))
            and (not isinstance(conn.server, str) or _place_server(environ, conn.server))
        )

    def _place_path(self, environ: dict[str, Any]) -> bool:
        path: str = environ["PATH_INFO"]
        if self._script_name:
            if not path.startswith(self._script_name):
                return False
            path = path[len(self._script_name) :]
        environ["PATH_INFO"] = unquote_to_wsgi_str(path) if "%" in path else path
        return True

    def _place_scheme(self, environ: dict[str, Any]) -> bool:
        said = [(environ[key], secure) for key, secure in self._scheme_headers if key in environ]
        if not said:
            return True
        value, secure = said[0]
        if len(said) > 1 or "," in value:
            return False
        environ["wsgi.url_scheme"] = "https" if value == secure else "http"
        return True


def _body_bytes(environ: dict[str, Any]) -> int | None:
    """How long the body is; None where it has no length that would tell."""
    if "HTTP_TRANSFER_ENCODING" in environ:
        return None
    length = environ.get("CONTENT_LENGTH")
    if length is None:
        return 0
    return int(length) if length.isdecimal() and length.isascii() and len(length) <= _MOST_DIGITS else None


def _place_server(environ: dict[str, Any], path: str) -> bool:
    """What a request through a local socket says of its server: nothing but its Host does."""
    host = environ.get("HTTP_HOST")
    if ":" in path or not host:
        return False
    name, *port = host.split(":")
    environ["SERVER_NAME"] = name
    environ["SERVER_PORT"] = port[0] if port else {"http": "80", "https": "443"}[environ["wsgi.url_scheme"]]
    return True
