"""Errors name a place in what was sent, whatever form that had."""

from __future__ import annotations

import io

import pytest
from served import SMALL_PICTURE, mean_colour

from loaders.handle import ModelHandle
from loaders.signature import TextInput
from service.http.problems import PROBLEM_JSON


def refuses(rows):
    raise ValueError("never these")


def texts(predict=refuses):
    return ModelHandle.from_callable(predict, name="m", input=TextInput())


def pictures():
    return ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE)


def places(answer) -> list[str]:
    assert answer.content_type == PROBLEM_JSON
    assert "instances" not in answer.text
    return [fault["loc"] for fault in answer.json.get("errors", [])]


def test_what_is_wrong_with_the_short_form_of_a_text_is_in_text(served):
    server = served(texts(), max_text_chars=10)
    too_long = server.post({"text": "a" * 11})
    assert (too_long.status_code, places(too_long)) == (413, [])
    assert too_long.json["detail"].startswith("the text of 11 characters in text is over the limit of 10")
    failed = server.post({"text": "a"})
    assert (failed.status_code, places(failed)) == (500, ["text"])


@pytest.mark.parametrize("good, place", [([], "file"), ([(io.BytesIO, "x.png")], "file[0]")])
def test_what_is_wrong_with_an_uploaded_file_is_in_that_file(served, good, place):
    server = served(pictures())
    files = [(io.BytesIO(b""), "bad.png"), *((make(b"\x89PNG"), name) for make, name in good)]
    answer = server.client.post("/predict", data={"file": files})
    assert (answer.status_code, places(answer)) == (422, [place])
    answer = server.client.post("/predict", data={"file": [(io.BytesIO(b"%PDF-1.4"), "bad.png")]})
    assert (answer.status_code, places(answer)) == (415, [])
    assert answer.json["detail"].startswith("file is not a picture")


def test_what_is_wrong_with_a_raw_picture_is_in_the_body(served):
    server = served(pictures())
    empty = server.client.post("/predict", data=b"", content_type="image/png")
    assert (empty.status_code, places(empty)) == (422, ["body"])
    other = server.client.post("/predict", data=b"%PDF-1.4", content_type="image/png")
    assert (other.status_code, other.json["detail"].split(" is ")[0]) == (415, "body")
