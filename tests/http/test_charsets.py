"""JSON is read as UTF-8, and a body that says it is written in anything else is not read at all."""

from __future__ import annotations

import io

import pytest
from PIL import Image
from served import SMALL_PICTURE, mean_colour, upper

from loaders.handle import ModelHandle
from loaders.signature import TextInput

TEXT = "Größe"
ROWS = '{"instances": ["Größe"]}'
TENSOR = '{"inputs": [{"name": "input", "datatype": "BYTES", "shape": [1], "data": ["Größe"]}]}'
BODIES = {
    "/predict": ROWS,
    "/models/m/predict": ROWS,
    "/v1/models/m:predict": ROWS,
    "/v2/models/m/infer": TENSOR,
    "/v2/repository/index": '{"ready": true}',
}


@pytest.fixture
def server(served):
    return served(ModelHandle.from_callable(upper, name="m", input=TextInput()))


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "charset", ["iso-8859-1", "utf-16", "UTF-32", "utf-7", "windows-1252", "marker", '"latin1"', '""']
)
def test_json_of_another_charset_is_refused_and_the_one_that_is_taken_named(server, path, charset):
    for data in (BODIES[path].encode(), BODIES[path].encode("latin-1")):
        answer = server.client.post(path, data=data, content_type=f"application/json; charset={charset}")
        assert answer.status_code == 415, answer.text
        assert "the only one taken is utf-8" in answer.text
        assert "marker" not in answer.text


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", "utf8", '"utf-8"', "us-ascii"])
def test_json_in_utf8_is_taken_under_each_of_its_names(server, path, charset):
    answer = server.client.post(path, data=BODIES[path].encode(), content_type=f"Application/JSON; charset={charset}")
    assert answer.status_code == 200, answer.text
    assert "index" in path or TEXT.upper() in answer.get_data(as_text=True)


def test_text_that_v1_takes_for_json_is_not_taken_in_another_charset(server):
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answers = [
            server.client.post("/v1/models/m:predict", data=ROWS.encode(), content_type=f"{kind}; charset={charset}")
            for charset in ("utf-8", "iso-8859-1")
        ]
        assert [answer.status_code for answer in answers] == [200, 415]


def test_pictures_and_forms_of_them_have_no_charset_to_mind(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", version="1", input=SMALL_PICTURE))
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(file, "PNG")
    parts = (b'name="model_version"\r\n\r\n1', b'name="file"\r\n\r\n' + file.getvalue())
    form = b"".join(b"--b\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts) + b"--b--\r\n"
    for data, kind in ((file.getvalue(), "image/png; "), (form, "multipart/form-data; boundary=b; ")):
        answer = server.client.post("/predict", data=data, content_type=kind + "charset=iso-8859-1")
        assert answer.json["prediction"] == [1, 0, 0]
