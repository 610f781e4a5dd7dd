from __future__ import annotations

import pytest

from service.probe_paths import PROBE_PATHS
from service.server.request_head import Head, asks_for_probe, head_of


@pytest.mark.parametrize("path", sorted(PROBE_PATHS))
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("target", ["{}", "/ml{}", "{}?name[]=up", "http://127.0.0.1:8000{}"])
def test_a_probe_is_known_by_its_request_line_wherever_the_app_is_mounted(path, method, target):
    assert asks_for_probe(f"{method} {target.format(path)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /livez HTTP/1.1\r\n\r\n",
        b"GET /predict HTTP/1.1\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nX: GET /livez HTTP/1.1\r\n\r\n",
        b"POST /predict HTTP/1.1\r\n\r\nGET /livez HTTP/1.1\r\n\r\n",
        b"GET /predict?next=/livez HTTP/1.1\r\n\r\n",
        b"GET /livez/ HTTP/1.1\r\n\r\n",
        b"GET",
        b"",
        b"\x16\x03\x01\x02\x00\x01\xfc",
    ],
)
def test_what_is_no_probe_does_not_look_like_one(sent):
    assert not asks_for_probe(sent)


@pytest.mark.parametrize(
    "sent, head",
    [
        (b"POST /v2/x?x=/v1 HTTP/1.1\r\nx-request-ID:  mine.1 \r\n\r\n", Head("POST", "/v2/x", "mine.1")),
        (b"GET http://x:8000/v1/models/m HTTP/1.1\nHost: x\nX-Request-Id: a\n\n", Head("GET", "/v1/models/m", "a")),
        (b"HEAD /livez HTTP/9.9\r\nHost: x\r\n\r\nX-Request-ID: of-the-body\r\n", Head("HEAD", "/livez")),
        (b"GET / HTTP/1.1\r\nY: X-Request-ID: n\r\nX-Request-ID: a\r\nX-Request-ID: b\r\n\r\n", Head("GET", "/", "a")),
        (b"GET /" + b"a" * 5000, Head("GET", "/" + "a" * 5000)),
        (b"\x16\x03\x01\x02\x00", Head("\x16\x03\x01\x02\x00")),
        (b"", Head()),
    ],
)  # fmt: skip
def test_what_a_client_has_said_of_its_request_is_known_before_it_is_parsed(sent, head):
    assert head_of(sent) == head
