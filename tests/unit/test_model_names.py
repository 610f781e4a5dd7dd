"""What a model may be called: every name that is taken is reached by each of the URLs."""

from __future__ import annotations

import pytest

from loaders.handle import ModelHandle
from loaders.names import is_name
from service import Settings, create_app

GOOD = ["m", "A.b-c_1", "0", "x" * 128, "stats", "predict", "versions", "a..b"]
BAD = [
    "",
    "a b/c",
    "a b",
    "a/b",
    "/",
    ".",
    "..",
    ".hidden",
    "-x",
    "_x",
    "m:predict",
    "é",
    "\u0661",
    "a\n",
    "a\0",
    "x" * 129,
]


@pytest.mark.parametrize("name", BAD)
def test_a_name_or_version_that_no_url_reaches_is_refused_when_the_model_is_made(name):
    assert not is_name(name)
    with pytest.raises(ValueError, match=r"^name=.*must be 1 to 128 letters"):
        ModelHandle.from_callable(len, name=name)
    with pytest.raises(ValueError, match=r"^version=.*must be 1 to 128 letters"):
        ModelHandle.from_callable(len, name="m", version=name)


def test_a_version_that_is_a_number_is_refused_as_well():
    with pytest.raises(ValueError, match=r"^version=2: must be 1 to 128"):
        ModelHandle.from_callable(len, name="m", version=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GOOD)
def test_every_name_that_is_taken_is_reached(name):
    model = ModelHandle.from_callable(lambda rows: [1.0 for _ in rows], name=name, version=name)
    app = create_app(Settings(warmup=False, max_batch_latency_ms=0), model_handle=model)
    client, runtime = app.test_client(), app.extensions["jitney"]
    runtime.start()
    try:
        assert runtime.batcher().wait_started(5)
        tensor = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 1], "data": [1]}]}
        rows = {"instances": [[1]]}
        for path, body in [
            (f"/models/{name}/predict", rows),
            (f"/models/{name}/versions/{name}/predict", rows),
            (f"/v1/models/{name}:predict", rows),
            (f"/v1/models/{name}/versions/{name}:predict", rows),
            (f"/v2/models/{name}/infer", tensor),
            (f"/v2/models/{name}/versions/{name}/infer", tensor),
        ]:
            answer = client.post(path, json=body)
            assert (answer.status_code, answer.headers["X-Model-Version"]) == (200, name), path
        for path in (f"/models/{name}", f"/v1/models/{name}", f"/v2/models/{name}/versions/{name}"):
            assert client.get(path).status_code == 200
    finally:
        assert runtime.close(5)
