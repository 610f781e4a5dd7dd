"""Bodies with a Content-Encoding, of every kind that a predict request may have."""

from __future__ import annotations

import gzip
import io
import json
import zlib

import pytest
from PIL import Image
from served import SMALL_PICTURE, mean_colour

from loaders.handle import ModelHandle

BODY = json.dumps({"instances": [[1, 2]]}).encode()


def post(server, data: bytes, encoding: str, content_type: str = "application/json", **more):
    headers = {"Content-Encoding": encoding}
    return server.client.post("/predict", data=data, headers=headers, content_type=content_type, **more)


@pytest.mark.parametrize(
    "encoding, pack", [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_a_packed_json_body_is_answered_like_a_plain_one(served, encoding, pack):
    assert post(served(), pack(BODY), encoding).json["predictions"] == [3.0]


def test_a_packed_picture_or_form_is_taken_too(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE))
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(file, "PNG")
    raw = post(server, gzip.compress(file.getvalue()), "gzip", "image/png")
    form = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + file.getvalue() + b"\r\n--b--\r\n"
    upload = post(server, gzip.compress(form), "gzip", "multipart/form-data; boundary=b")
    assert raw.json["prediction"] == upload.json["prediction"] == [1, 0, 0]


def test_a_packed_body_of_unknown_length_is_taken(served):
    answer = served().client.post(
        "/predict", input_stream=io.BytesIO(gzip.compress(BODY)), content_type="application/json",
        headers={"Content-Encoding": "gzip"},
        environ_overrides={"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"},
    )  # fmt: skip
    assert answer.json["predictions"] == [3.0]


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "deflate, gzip", "x"])
def test_an_unknown_encoding_is_told_which_ones_there_are(served, encoding):
    answer = post(served(), BODY, encoding)
    assert (answer.status_code, answer.content_type) == (415, "application/problem+json")
    assert answer.headers["Accept-Encoding"] == "gzip, deflate, identity"
    assert "Content-Encoding" in answer.json["detail"]


def test_a_wrong_content_type_says_nothing_of_encodings(served):
    assert "Accept-Encoding" not in served().client.post("/predict", data=b"x", content_type="text/plain").headers


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_plain_body_that_claims_to_be_packed_is_malformed(served, encoding):
    server = served()
    answer = post(server, BODY, encoding)
    assert (answer.status_code, answer.json["title"]) == (400, "Malformed body")
    assert server.predict([1, 2]).json["predictions"] == [3.0]


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(gzip.compress(BODY)[:-3], id="cut"),
        pytest.param(gzip.compress(BODY) + b"!", id="one byte too many"),
        pytest.param(gzip.compress(BODY) * 2, id="twice"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_packed_body_that_is_cut_or_goes_on_is_malformed(served, packed):
    assert post(served(), packed, "gzip").status_code == 400


def test_a_body_that_opens_to_more_than_the_limit_is_refused_by_name(served):
    server = served(max_body_bytes=1000)
    assert post(server, gzip.compress(BODY.ljust(1000)), "gzip").status_code == 200
    for size in (1001, 100_000_000):
        answer = post(server, gzip.compress(BODY.ljust(size))[:1000], "gzip")
        assert answer.status_code == 413
        assert "decompression" in answer.json["detail"]
        assert "MAX_BODY_BYTES" in answer.json["detail"]


def test_the_limit_holds_for_what_is_sent_too(served):
    noise = b"".join(zlib.crc32(b"%d" % i).to_bytes(4, "big") for i in range(300))
    answer = post(served(max_body_bytes=1000), gzip.compress(noise), "gzip")
    assert answer.status_code == 413
    assert "decompression" not in answer.json["detail"]


def test_a_length_over_the_limit_is_refused_before_anything_is_read(served):
    class Untouched:
        def read(self, size=-1):
            raise AssertionError("it was read")

    answer = served(max_body_bytes=100).client.post(
        "/predict", content_type="application/json",
        environ_overrides={"wsgi.input": Untouched(), "CONTENT_LENGTH": "101"},
    )  # fmt: skip
    assert answer.status_code == 413
