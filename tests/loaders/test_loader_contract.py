"""What every loader promises, asked of a real model of every format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders import ModelHandle, ModelLoadError, TextInput, load_model

TEXTS = ["good film", "bad", "a very very good film not bad", "not a good film", "", "films"]


@dataclass(frozen=True)
class Served:
    """A loaded model, rows for it, and what its framework answers to one of them directly."""

    path: Path
    handle: ModelHandle
    rows: list[Any]
    direct: Callable[[int], Any]


def _digits(path: Path, request: pytest.FixtureRequest) -> Served:
    digits = request.getfixturevalue("digits")
    handle = load_model(path, allow_pickle=True)
    return Served(
        path, handle, list(digits.data[500:506]), lambda i: digits.estimator.predict(digits.data[500 + i][None])[0]
    )


def _onnx(request: pytest.FixtureRequest) -> Served:
    import onnxruntime

    path = request.getfixturevalue("digits_onnx")
    data = request.getfixturevalue("digits").data[500:506].astype(np.float32)
    session = onnxruntime.InferenceSession(str(path))

    def direct(i: int) -> Any:
        label, scores = session.run(None, {"X": data[i][None]})
        return {"label": label[0], "probabilities": scores[0]}

    return Served(path, load_model(path), list(data), direct)


def _arrays(path: Path, request: pytest.FixtureRequest) -> Served:
    import torch

    net = request.getfixturevalue("net")
    data = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)

    def direct(i: int) -> Any:
        with torch.no_grad():
            return net(torch.from_numpy(data[i][None]))[0].numpy()

    return Served(path, load_model(path), list(data), direct)


def _texts(path: Path) -> Served:
    import torch
    from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

    handle = load_model(path)
    assert isinstance(handle.input, TextInput)
    assert handle.input.encode is not None
    tokenizer = AutoTokenizer.from_pretrained(path)
    auto = AutoModel if path.name == "embedder" else AutoModelForSequenceClassification
    model = auto.from_pretrained(path).eval()

    def direct(i: int) -> Any:
        with torch.no_grad():
            output = model(**tokenizer(TEXTS[i], return_tensors="pt"))
        if path.name != "embedder":
            return output.logits[0].numpy()
        mean = output.last_hidden_state[0].mean(dim=0)
        return (mean / mean.norm()).numpy()

    return Served(path, handle, [handle.input.encode(text) for text in TEXTS], direct)


@pytest.fixture(
    scope="module", params=["pickle", "joblib", "onnx", "torchscript", "pt2", "transformers", "transformers embedding"]
)
def served(request: pytest.FixtureRequest) -> Served:
    match request.param:
        case "pickle" | "joblib":
            return _digits(request.getfixturevalue(f"digits_{request.param}"), request)
        case "onnx":
            return _onnx(request)
        case "torchscript":
            return _arrays(request.getfixturevalue("traced"), request)
        case "pt2":
            return _arrays(request.getfixturevalue("exported"), request)
        case "transformers":
            return _texts(request.getfixturevalue("sentiment"))
        case _:
            return _texts(request.getfixturevalue("embedder"))


def same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            same(value, other[key])
    else:
        np.testing.assert_allclose(one, other, atol=1e-5)
        assert np.shape(one) == np.shape(other)


def test_a_row_alone_gets_the_frameworks_own_answer(served: Served) -> None:
    for number, row in enumerate(served.rows):
        (result,) = served.handle.predict_batch([row])
        same(result, served.direct(number))


def test_a_row_in_a_batch_gets_the_answer_it_gets_alone_wherever_it_stands(served: Served) -> None:
    order = [3, 0, 5, 1, 2, 4]
    results = served.handle.predict_batch([served.rows[number] for number in order])
    assert len(results) == len(order)
    for number, result in zip(order, results, strict=True):
        same(result, served.direct(number))


def test_a_later_batch_leaves_earlier_results_alone(served: Served) -> None:
    first = served.handle.predict_batch(served.rows[:2])
    kept = [
        {key: np.copy(value) for key, value in row.items()} if isinstance(row, dict) else np.copy(row) for row in first
    ]
    served.handle.predict_batch(served.rows[2:4])
    for before, after in zip(kept, first, strict=True):
        same(before, after)


def test_a_handle_says_what_was_loaded_and_where_it_runs(served: Served) -> None:
    handle = served.handle
    assert (handle.name, handle.version, handle.device) == (served.path.stem, "1", "cpu")
    assert handle.path == served.path.resolve()
    assert handle.warnings == ()


def test_a_name_and_version_that_are_given_win(served: Served) -> None:
    handle = load_model(served.path, name="mine", version="7", allow_pickle=True, device="cpu")
    assert (handle.name, handle.version) == ("mine", "7")


def test_a_closed_model_no_longer_predicts(served: Served) -> None:
    handle = load_model(served.path, allow_pickle=True)
    handle.close()
    with pytest.raises((TypeError, AttributeError)):
        handle.predict_batch(served.rows[:1])


@pytest.mark.parametrize("suffix", [".pkl", ".joblib", ".onnx", ".pt", ".pt2", ".torchscript"])
@pytest.mark.parametrize("content", [b"", b"not a model at all", b"\x80\x05K\x01."])
def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match="broken"):
        load_model(path, allow_pickle=True)
