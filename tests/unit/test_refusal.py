"""Answers to what never gets to the app."""

from __future__ import annotations

import json

import pytest

from service.server.refusal import refusal, status_of
from service.server.request_head import Head


def parts(data: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    return first, dict(line.split(": ") for line in lines), body


@pytest.mark.parametrize(
    "path, prefix, is_of_protocol",
    [
        ("/v1/models/m:predict", "", True),
        ("/v2", "", True),
        ("/ml/v2/models/m/infer", "/ml", True),
        ("/ml/v2/models/m/infer", "", False),
        ("/v20", "", False),
        ("/predict", "", False),
        ("", "", False),
    ],
)
def test_the_form_is_that_of_the_path(path, prefix, is_of_protocol):
    told = refusal(414, Head("POST", path, "mine"), prefix)
    first, headers, body = parts(told.data)
    document = json.loads(body)
    assert (first, told.request_id, headers["X-Request-ID"]) == ("HTTP/1.1 414 Request-URI Too Long", "mine", "mine")
    assert int(headers["Content-Length"]) == len(body)
    assert headers["Connection"] == "close"
    if is_of_protocol:
        assert (headers["Content-Type"], list(document)) == ("application/json", ["error"])
    else:
        assert headers["Content-Type"] == "application/problem+json"
        assert (document["status"], document["request_id"]) == (414, "mine")


@pytest.mark.parametrize("asked", ["", "no good", "é", "x" * 65, "a\r\nSet-Cookie: b"])
def test_an_id_that_cannot_be_taken_over_is_made(asked):
    told = refusal(400, Head("POST", "/predict", asked))
    assert len(told.request_id) == 16
    assert parts(told.data)[1]["X-Request-ID"] == told.request_id


def test_an_answer_to_head_has_no_body_but_its_length():
    _, headers, body = parts(refusal(400, Head("HEAD", "/livez")).data)
    assert body == b""
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("page, status", [(b"HTTP/1.1 431 Too Large\r\n\r\n<html>", 431), (b"", 500)])
def test_the_status_is_that_of_gunicorns_own_page(page, status):
    assert status_of(page) == status
