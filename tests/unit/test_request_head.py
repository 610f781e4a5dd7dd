from __future__ import annotations

import pytest

from service.probe_paths import PROBE_PATHS
from service.request_head import MAX_HEAD_BYTES, asks_for_probe, is_whole


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
    "sent, whole",
    [
        (b"", False),
        (b"GET /livez HT", False),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n", False),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"POST /predict HTTP/1.1\r\n\r\nhalf a bo", True),
        (b"GET /livez HTTP/1.1\nHost: x\n\n", True),
        (b"GET /" + b"a" * MAX_HEAD_BYTES, True),
    ],
)
def test_a_head_is_whole_when_its_parser_need_not_wait_or_has_to_refuse_it(sent, whole):
    assert is_whole(sent) is whole
