"""Bodies that would run code if anybody unpickled them, and files that are not what they say."""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from served import SMALL_PICTURE, Served, mean_colour, sums, upper
from support.payload import Payload

from loaders.handle import ModelHandle
from loaders.signature import TextInput


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "the-payload-ran"


def as_pickle(trace: Path) -> bytes:
    return pickle.dumps(Payload(trace))


def as_npy(trace: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Payload(trace)], dtype=object), allow_pickle=True)
    return file.getvalue()


MODELS: dict[str, tuple[Callable[[Served], Any], Callable[[], Any]]] = {
    "rows": (lambda server: server.predict([1, 2]), lambda: sums),
    "texts": (
        lambda server: server.predict("a"),
        lambda: ModelHandle.from_callable(upper, name="loud", input=TextInput()),
    ),
    "pictures": (
        lambda server: server.client.post("/predict", data=png("red"), content_type="image/png"),
        lambda: ModelHandle.from_callable(mean_colour, name="colours", input=SMALL_PICTURE),
    ),
}


def png(colour: str, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("packed", [as_pickle, as_npy])
def test_a_pickle_in_a_request_is_refused_and_never_loaded(served, trace, model, packed):
    good, make = MODELS[model]
    server = served(make())
    body = packed(trace)
    text = base64.b64encode(body).decode()
    for content_type in ("application/octet-stream", "application/x-pickle", "application/vnd.jitney+pickle"):
        assert server.client.post("/predict", data=body, content_type=content_type).status_code == 415
    answers = [
        server.client.post("/predict", data=body, content_type="image/png"),
        server.client.post("/predict", data={"file": (io.BytesIO(body), "model.npy")}),
        server.client.post("/predict", data=body, content_type="application/json"),
        server.predict({"b64": text}),
        server.predict([text]),
    ]
    assert {answer.status_code for answer in answers} <= {400, 415, 422}
    if model != "texts":  # to a model of texts it is one
        assert server.predict(text).status_code == 422
    assert not trace.exists()
    assert good(server).status_code == 200
    pickle.loads(pickle.dumps(Payload(trace)))
    assert trace.exists(), "the payload must be one that runs"


@pytest.mark.parametrize(
    "content",
    [b"%PDF-1.7\n", b"<!doctype html><p>", b'<svg xmlns="http://www.w3.org/2000/svg"/>', b"\0", b"\0\0\0\x18ftypheic"],
)
def test_an_upload_that_is_no_picture_is_refused_with_the_types_there_are(served, content):
    _, make = MODELS["pictures"]
    server = served(make())
    sent = {"b64": base64.b64encode(content).decode()}
    for answer in (
        server.client.post("/predict", data={"file": (io.BytesIO(content), "photo.jpg", "image/jpeg")}),
        server.client.post("/predict", data=content, content_type="image/jpeg"),
        server.predict(sent),
    ):
        assert answer.status_code == 415
        assert "JPEG, PNG, WebP, GIF, BMP or TIFF" in answer.json["detail"]


def test_an_empty_upload_is_invalid(served):
    _, make = MODELS["pictures"]
    server = served(make())
    assert server.client.post("/predict", data={"file": (io.BytesIO(b""), "photo.jpg")}).status_code == 422
    assert server.predict({"b64": ""}).status_code == 422


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP"])
def test_a_picture_counts_by_its_content_whatever_it_is_called(served, kind):
    _, make = MODELS["pictures"]
    server = served(make())
    data = png("blue", kind)
    upload = server.client.post("/predict", data={"file": (io.BytesIO(data), "photo.jpg", "image/jpeg")})
    raw = server.client.post("/predict", data=data, content_type="image/jpeg")
    assert upload.status_code == raw.status_code == 200
    assert upload.json["prediction"] == raw.json["prediction"] == pytest.approx([0, 0, 1], abs=0.02)


@pytest.mark.parametrize(
    "instances, where",
    [
        ("hello", "instances"),
        (["a", 5], "instances[1]"),
        (["a", None], "instances[1]"),
        ([["a"]], "instances[0]"),
        ([{"text": "a"}], "instances[0]"),
        ([True], "instances[0]"),
    ],
)
def test_what_is_no_list_of_texts_is_refused_where_it_stands(served, instances, where):
    _, make = MODELS["texts"]
    server = served(make())
    answer = server.client.post("/predict", json={"instances": instances})
    assert (answer.status_code, answer.json["errors"][0]["loc"]) == (422, where)
    assert server.predict("a").json["predictions"] == ["A"]


def test_ten_times_as_many_texts_as_fit_a_batch_are_all_answered(served):
    _, make = MODELS["texts"]
    server = served(make(), max_batch_size=4)
    assert server.predict(*["a"] * 40).json["predictions"] == ["A"] * 40
