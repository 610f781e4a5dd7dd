"""Answers as gzip, for clients that ask for it."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from flask import Response

from loaders.handle import ModelHandle
from service.http.compression import MIN_BYTES


@pytest.fixture
def wide(served):
    return served(ModelHandle.from_callable(lambda rows: [np.arange(500.0)] * len(rows), name="m"))


def ask(server, accepted: str | None, path: str = "/predict"):
    headers = {} if accepted is None else {"Accept-Encoding": accepted}
    return server.client.post(path, json={"instances": [[1]]}, headers=headers)


@pytest.mark.parametrize(
    "accepted",
    ["gzip", "gzip, deflate, br", "GZIP", "gzip;q=0.1", "*", "br;q=1, *;q=0.1", "identity;q=0.5, gzip;q=0.5"],
)
def test_a_long_answer_is_packed_for_a_client_that_takes_gzip(wide, accepted):
    answer = ask(wide, accepted)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in answer.headers["Vary"]
    assert int(answer.headers["Content-Length"]) == len(answer.data)
    body = gzip.decompress(answer.data)
    assert len(answer.data) < len(body) / 2
    assert json.loads(body)["predictions"] == [list(range(500))]


@pytest.mark.parametrize(
    "accepted",
    [None, "", "identity", "br", "gzip;q=0", "gzip;q=0, *", "*;q=0", "identity, gzip;q=0.5", "*, gzip;q=0.5",
     "gzip;q=x", "gzippy", "," * 5000],
    ids=lambda text: str(text)[:30],
)  # fmt: skip
def test_nobody_else_gets_it_and_caches_are_told(wide, accepted):
    answer = ask(wide, accepted)
    assert "Content-Encoding" not in answer.headers
    assert "Accept-Encoding" in answer.headers["Vary"]
    assert answer.json["predictions"] == [list(range(500))]


def test_a_short_answer_stays_as_it_is(served):
    answer = ask(served(), "gzip")
    assert len(answer.data) < MIN_BYTES
    assert {"Content-Encoding", "Vary"}.isdisjoint(answer.headers.keys())


def test_metrics_are_packed_for_prometheus(wide):
    answer = wide.client.get("/metrics", headers={"Accept-Encoding": "gzip"})
    assert b"inference_batch_size" in gzip.decompress(answer.data)


def test_an_error_with_many_places_is_packed_too(served):
    answer = served().client.post("/predict", json={"instances": [[True]] * 50}, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 422
    assert len(json.loads(gzip.decompress(answer.data))["errors"]) == 20


LONG = b"0123456789" * 1000


@pytest.mark.parametrize(
    "make",
    [
        lambda: Response(LONG, content_type="application/octet-stream"),
        lambda: Response(LONG, content_type="image/png"),
        lambda: Response(
            gzip.compress(LONG).ljust(MIN_BYTES), content_type="text/plain", headers={"Content-Encoding": "gzip"}
        ),
        lambda: Response(iter([LONG]), content_type="text/plain"),
        lambda: Response(LONG, 206, content_type="text/plain", headers={"Content-Range": "bytes 0-9999/20000"}),
        lambda: Response(np.random.default_rng(0).bytes(5000), content_type="text/plain"),
    ],
    ids=["binary", "picture", "packed", "streamed", "a part", "noise"],
)
def test_what_would_gain_nothing_or_break_is_left_alone(served, make):
    server = served()
    server.app.add_url_rule("/extra", view_func=make)
    plain = server.client.get("/extra")
    answer = server.client.get("/extra", headers={"Accept-Encoding": "gzip"})
    assert answer.data == plain.data
    assert answer.headers.get("Content-Encoding") == plain.headers.get("Content-Encoding")


def test_a_strong_tag_is_not_kept_for_other_bytes(served):
    server = served()

    def view():
        response = Response(LONG, content_type="text/html")
        response.set_etag("v1")
        return response

    server.app.add_url_rule("/extra", view_func=view)
    assert server.client.get("/extra").headers["ETag"] == '"v1"'
    assert server.client.get("/extra", headers={"Accept-Encoding": "gzip"}).headers["ETag"] == 'W/"v1"'


def test_a_head_request_tells_the_length_that_a_get_would_have(wide):
    got = wide.client.get("/metrics", headers={"Accept-Encoding": "gzip"})
    asked = wide.client.head("/metrics", headers={"Accept-Encoding": "gzip"})
    assert asked.data == b""
    assert asked.headers["Content-Encoding"] == got.headers["Content-Encoding"] == "gzip"
