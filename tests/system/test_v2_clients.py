"""The Open Inference Protocol's own client, unmodified, against the real server with real models."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import ml_dtypes
import numpy as np
import pytest
import requests
import tritonclient.http as triton
from sklearn.linear_model import LinearRegression
from tritonclient.utils import InferenceServerException

from loaders import pin
from service.demo.curl import EXAMPLE_DIGIT, EXAMPLE_ROW, EXAMPLE_SENTENCE
from tests.system.conftest import Server, starting

pytestmark = pytest.mark.system

TOKEN = {"Authorization": "Bearer the-admin-token"}
ROWS = np.array([EXAMPLE_ROW, EXAMPLE_ROW[::-1]], np.float64)
SENTENCES = [EXAMPLE_SENTENCE, "This was terrible and I hated every minute.", "Ça va très bien, merci!"]


def put_slope(root: Path, version: int) -> None:
    """A bundle whose model multiplies by its version."""
    directory = root / "slope" / str(version)
    directory.mkdir(parents=True)
    rows = np.arange(8.0).reshape(-1, 1)
    joblib.dump(LinearRegression(fit_intercept=False).fit(rows, rows[:, 0] * version), directory / "model.joblib")
    (directory / "jitney.toml").write_text('[model]\nfile = "model.joblib"\n')
    pin(directory)


@pytest.fixture(scope="module")
def root(demo_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a table, a text and a picture model, and one of two versions."""
    root = tmp_path_factory.mktemp("repository")
    for name in ("digits", "sentiment", "imagenet"):
        shutil.copytree(demo_models / name, root / name / "1")
    for version in (1, 2):
        put_slope(root, version)
    return root


@pytest.fixture(scope="module")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with starting(tmp_path_factory.mktemp("server")) as start:
        yield start(
            app="service:create_app()", MODEL_PATH="", MODEL_FORMAT="", MODEL_REPOSITORY=root, MODEL_NAME="digits",
            ADMIN_TOKEN="the-admin-token", SELF_CHECK="off", MAX_BATCH_LATENCY_MS=100,
        )  # fmt: skip


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with connected(server) as client:
        yield client


def connected(server: Server, **how: Any) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(server.url.removeprefix("http://"), **how)


def tensor(array: np.ndarray, datatype: str, *, name: str = "input", binary: bool = True) -> triton.InferInput:
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


def texts(*values: str | bytes, **how: Any) -> triton.InferInput:
    encoded = [value if isinstance(value, bytes) else value.encode() for value in values]
    return tensor(np.array(encoded, np.object_).reshape(-1, 1), "BYTES", **how)


def predictions(server: Server, name: str, *instances: Any) -> list[Any]:
    answer = server.post({"instances": list(instances)}, f"/models/{name}/predict")
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


def test_the_server_and_its_models_describe_themselves(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    for name in ("digits", "sentiment", "imagenet"):
        assert client.is_model_ready(name)
        assert client.is_model_ready(name, "1")
        assert client.get_model_metadata(name)["versions"] == ["1"]
        assert client.get_model_config(name)["dynamic_batching"]
    assert not client.is_model_ready("nothing")
    inputs = {name: client.get_model_metadata(name)["inputs"] for name in ("digits", "sentiment", "imagenet")}
    assert inputs["digits"] == [{"name": "input", "datatype": "FP64", "shape": [-1, 64]}]
    assert inputs["sentiment"] == inputs["imagenet"] == [{"name": "input", "datatype": "BYTES", "shape": [-1, 1]}]
    index = {(one["name"], one["version"]): one["state"] for one in client.get_model_repository_index()}
    assert index[("digits", "1")] == index[("slope", "1")] == "READY"


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_digits_are_read_alike_however_the_tensors_travel(server, client, binary_in, binary_out):
    expected = predictions(server, "digits", *ROWS.tolist())
    assert expected[0] == EXAMPLE_DIGIT
    result = client.infer(
        "digits",
        [tensor(ROWS, "FP64", binary=binary_in)],
        outputs=[triton.InferRequestedOutput("output", binary_data=binary_out)],
        request_id="mine",
    )
    assert result.as_numpy("output").tolist() == expected
    response = result.get_response()
    assert (response["model_name"], response["model_version"], response["id"]) == ("digits", "1", "mine")
    assert ("data" in response["outputs"][0]) == (not binary_out)
    assert result.get_output("nothing") is None


@pytest.mark.parametrize(
    "datatype, dtype",
    [("FP16", "f2"), ("BF16", ml_dtypes.bfloat16), ("FP32", "f4"), ("INT8", "i1"), ("UINT8", "u1"), ("UINT64", "u8")],
)
def test_a_table_takes_every_datatype_that_holds_its_numbers(server, client, datatype, dtype):
    result = client.infer("digits", [tensor(ROWS.astype(dtype), datatype)])
    assert result.as_numpy("output").tolist() == predictions(server, "digits", *ROWS.tolist())


@pytest.mark.parametrize("dtype, datatype", [("bool", "BOOL"), ("float16", "FP16"), ("int64", "INT64")])
def test_a_tensor_comes_back_as_it_was_sent_and_16_bit_floats_as_those_of_32(start, dtype, datatype):
    array = np.array([[0, 1], [1, 1], [1, 0]], dtype)
    server = start(app="typed:app", TYPE=dtype, MODEL_PATH="", MODEL_FORMAT="")
    with connected(server) as client:
        metadata = client.get_model_metadata("echo")
        assert metadata["inputs"] == [{"name": "input", "datatype": datatype, "shape": [-1, 2]}]
        shown = "FP32" if datatype == "FP16" else datatype
        assert metadata["outputs"] == [{"name": "output", "datatype": shown, "shape": [-1, 2]}]
        for binary in (True, False) if datatype != "FP16" else (True,):
            result = client.infer("echo", [tensor(array, datatype, binary=binary)])
            assert result.get_output("output")["datatype"] == shown
            assert np.array_equal(result.as_numpy("output"), array)


@pytest.mark.parametrize("binary", [True, False])
def test_sentences_get_the_labels_and_scores_of_predict(server, client, binary):
    expected = predictions(server, "sentiment", *SENTENCES)
    result = client.infer("sentiment", [texts(*SENTENCES, binary=binary)])
    assert [label.decode() for label in result.as_numpy("label")] == [one["label"] for one in expected]
    assert result.as_numpy("score").tolist() == pytest.approx([one["score"] for one in expected], abs=1e-4)
    chosen = client.infer(
        "sentiment",
        [texts(*SENTENCES, binary=binary)],
        outputs=[
            triton.InferRequestedOutput("score", binary_data=False),
            triton.InferRequestedOutput("label", binary_data=True),
        ],
    )
    assert [one["name"] for one in chosen.get_response()["outputs"]] == ["score", "label"]
    assert chosen.as_numpy("label").tolist() == result.as_numpy("label").tolist()


def test_photos_get_the_classes_of_predict(server, client, demo_models):
    photos = [(demo_models / "imagenet" / "samples" / name).read_bytes() for name in ("china.jpg", "flower.jpg")]
    expected = predictions(server, "imagenet", *({"b64": base64.b64encode(photo).decode()} for photo in photos))
    result = client.infer("imagenet", [texts(*photos)])
    assert result.as_numpy("label").shape == (2, 5)
    assert [[label.decode() for label in row] for row in result.as_numpy("label")] == [
        [one["label"] for one in best] for best in expected
    ]
    assert [row[0] for row in result.as_numpy("label")] == [b"palace", b"daisy"]
    assert result.as_numpy("score")[0].tolist() == pytest.approx([one["score"] for one in expected[0]], abs=1e-4)
    raw = requests.post(
        server.url + "/v2/models/imagenet/infer",
        photos[1],
        headers={"Inference-Header-Content-Length": "0"},
        timeout=30,
    )
    assert b"daisy" in raw.content


@pytest.mark.parametrize("sent", [None, "gzip", "deflate"])
@pytest.mark.parametrize("wanted", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_bodies_may_be_packed_both_ways(client, sent, wanted, binary):
    many = np.repeat(ROWS, 400, axis=0)
    result = client.infer(
        "digits",
        [tensor(many, "FP64", binary=binary)],
        outputs=[triton.InferRequestedOutput("output", binary_data=binary)],
        request_compression_algorithm=sent,
        response_compression_algorithm=wanted,
    )
    assert (
        result.as_numpy("output").tolist() == client.infer("digits", [tensor(many, "FP64")]).as_numpy("output").tolist()
    )


def test_json_that_is_worth_it_comes_packed(server):
    body = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [800, 64], "data": ROWS.tolist() * 400}]}
    answer = server.post(body, "/v2/models/digits/infer")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(answer.json()["outputs"][0]["data"]) == 800


def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value.status(), caught.value.message()


def test_a_timeout_in_microseconds_ends_with_504(client):
    status, message = refusal(lambda: client.infer("digits", [tensor(ROWS, "FP64")], timeout=1))
    assert (status, message.startswith("no answer within")) == ("504", True)
    assert client.infer("digits", [tensor(ROWS, "FP64")], timeout=20_000_000, priority=1)
    assert client.infer("digits", [tensor(ROWS, "FP64")], priority=9, parameters={"unknown": "x"})


def test_errors_have_their_status_and_a_message_that_says_where(client):
    wrong_width = tensor(ROWS[:, :5], "FP64")
    for call, status, words in [
        (lambda: client.infer("nothing", [tensor(ROWS, "FP64")]), "404", "no model of this name"),
        (lambda: client.infer("digits", [tensor(ROWS, "FP64")], model_version="7"), "404", "version"),
        (lambda: client.infer("digits", [wrong_width]), "400", "inputs[0]"),
        (lambda: client.infer("digits", [tensor(ROWS, "FP64", name="pixels")]), "400", "inputs[0].name"),
        (lambda: client.infer("digits", [texts("a")]), "400", "inputs[0]"),
        (lambda: client.infer("digits", [tensor(ROWS * np.nan, "FP64")]), "400", "inputs[0].data[0]"),
        (lambda: client.infer("sentiment", [texts(b"\xff")]), "400", "is not UTF-8"),
        (lambda: client.infer("imagenet", [texts(b"no picture")]), "415", "inputs[0].data[0]"),
        (
            lambda: client.infer("digits", [tensor(ROWS, "FP64")], outputs=[triton.InferRequestedOutput("digit")]),
            "400",
            "outputs[0].name: is no output of this model; it has 'output'",
        ),
        (lambda: client.infer("digits", [tensor(ROWS, "FP64")], sequence_id=5), "400", "sequence"),
        (lambda: client.infer("digits", [tensor(np.repeat(ROWS, 600, axis=0), "FP64")]), "413", "MAX_INSTANCES"),
        (lambda: client.get_model_metadata("nothing"), "404", "no model"),
        (lambda: client.get_inference_statistics("nothing"), "404", "no model"),
        (lambda: client.get_system_shared_memory_status(), "404", "nothing at this path"),
    ]:
        told = refusal(call)
        assert told[0] == status, told
        assert words in told[1]
    assert client.infer("digits", [tensor(ROWS, "FP64")]).as_numpy("output")[0] == EXAMPLE_DIGIT


def totals(client, name: str) -> dict[str, int]:
    (stats,) = client.get_inference_statistics(name)["model_stats"]
    parts = stats["inference_stats"]
    return {
        "rows": stats["inference_count"],
        "batches": stats["execution_count"],
        "success": parts["success"]["count"],
        "fail": parts["fail"]["count"],
        "sizes": sum(one["batch_size"] * one["compute_infer"]["count"] for one in stats["batch_stats"]),
    }


def test_a_burst_of_requests_is_answered_each_with_its_own_and_leaves_in_fewer_batches(server):
    asked = 256
    numbers = np.random.default_rng(5).integers(0, 17, (asked, 64)).astype(np.float64)
    with connected(server, concurrency=32) as client:
        before = totals(client, "digits")
        pending = [
            client.async_infer("digits", [tensor(row[None], "FP64")], request_id=str(i))
            for i, row in enumerate(numbers)
        ]
        results = [request.get_result(timeout=60) for request in pending]
        after = totals(client, "digits")
    assert [result.get_response()["id"] for result in results] == [str(i) for i in range(asked)]
    assert [int(result.as_numpy("output")[0]) for result in results] == predictions(server, "digits", *numbers.tolist())
    grown = {name: after[name] - before[name] for name in after}
    assert grown["rows"] == grown["success"] == grown["sizes"] == asked
    assert grown["fail"] == 0
    assert grown["batches"] < asked


def test_models_are_loaded_and_unloaded_and_a_failed_load_keeps_what_serves(client, root):
    one = np.array([[3.0]])

    def answer() -> tuple[float, str]:
        result = client.infer("slope", [tensor(one, "FP64")])
        return round(float(result.as_numpy("output")[0]), 6), result.get_response()["model_version"]

    assert answer() == (6.0, "2")
    assert refusal(lambda: client.load_model("slope"))[0] == "401"
    client.unload_model("slope", headers=TOKEN)
    assert not client.is_model_ready("slope")
    assert refusal(answer)[0] == "404"
    assert refusal(lambda: client.unload_model("slope", headers=TOKEN))[0] == "404"
    put_slope(root, 3)
    client.load_model("slope", headers=TOKEN)
    assert answer() == (9.0, "3")
    put_slope(root, 4)
    (root / "slope" / "4" / "model.joblib").write_bytes(b"cut short")
    status, message = refusal(lambda: client.load_model("slope", headers=TOKEN))
    assert status == "500"
    assert str(root) not in message
    assert answer() == (9.0, "3")
    states = {one["version"]: one for one in client.get_model_repository_index() if one["name"] == "slope"}
    assert (states["3"]["state"], states["4"]["state"]) == ("READY", "UNAVAILABLE")
    assert states["4"]["reason"]
    assert str(root) not in states["4"]["reason"]
    shutil.rmtree(root / "slope" / "4")
    client.load_model("slope", headers=TOKEN)
    assert answer() == (9.0, "3")
    assert refusal(lambda: client.load_model("nothing", headers=TOKEN))[0] == "404"


def test_models_and_configurations_are_not_taken_over_http(client, root):
    before = sorted(path.name for path in root.rglob("*"))
    status, message = refusal(
        lambda: client.load_model("slope", headers=TOKEN, config="{}", files={"file:9/model.joblib": b"payload"})
    )
    assert (status, "MODEL_REPOSITORY" in message) == ("403", True)
    status, message = refusal(lambda: client.load_model("slope", headers=TOKEN, config="{}"))
    assert (status, "parameters.config" in message) == ("400", True)
    assert sorted(path.name for path in root.rglob("*")) == before
