"""What a front end is told of a model, and what it can do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders.formats.text import make_encoder
from loaders.handle import ModelHandle
from loaders.signature import EncodedText, ImageInput, InputSpec, OutputSpec, TabularInput, TensorInput, TextInput
from service.models.copies import copied, copies_of
from service.sharing.description import IndescribableModel, described, restored
from service.sharing.frames import FrameError


def handle(spec: InputSpec, **more: Any) -> ModelHandle:
    return ModelHandle("m", "7", "onnx", lambda rows: rows, input=spec, **more)


def over(model: ModelHandle, sample: Any = None, given: ModelHandle | None = None) -> tuple[ModelHandle, Any]:
    told, parts = described(model, sample, with_input=given is None)
    return restored(told, memoryview(b"".join(bytes(part) + bytes(-len(part) % 16) for part in parts)), given)


@pytest.mark.parametrize(
    "spec",
    [
        TabularInput(columns=("a", "b"), width=2, allow_null=True, dtype="object", without_null=(1,)),
        TextInput(max_length=9, pad_to_multiple_of=8),
        ImageInput(8, 9, crop=(4, 4), layout="NHWC", mean=(0.1, 0.2, 0.3)),
        TensorInput(shape=(None, 3), dtype="int64"),
    ],
    ids=lambda spec: spec.kind.value,
)
def test_everything_but_predicting_arrives(spec: InputSpec):
    model = handle(
        spec,
        output=OutputSpec(task="classification", labels=("no", "yes"), top_k=2, softmax=True),
        device="cuda:1",
        metadata={"classes": np.array(["x", "y"]), "model": {"dtype": "float16"}, "where": Path("/a")},
        parameters=frozenset({"proba"}),
        warnings=("slow",),
    )
    again, sample = over(model, [0.25, {"label": "yes"}])
    assert again.input == spec
    for name in ("name", "version", "fmt", "output", "device", "parameters", "warnings"):
        assert getattr(again, name) == getattr(model, name)
    assert again.metadata["classes"].tolist() == ["x", "y"]
    assert again.metadata["model"] == {"dtype": "float16"}
    assert sample == [0.25, {"label": "yes"}]
    with pytest.raises(RuntimeError):
        again.predict_batch([1])


def test_a_front_end_knows_how_many_copies_the_owner_has():
    one = handle(TensorInput(shape=(3,), dtype="float32"))
    assert copies_of(over(one)[0]) == 1
    assert copies_of(over(copied(lambda: one, "", 3))[0]) == 3


def test_a_tokenizer_is_made_anew_and_gives_the_same_tokens():
    tokenizers = pytest.importorskip("tokenizers")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "good": 1, "film": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    spec = TextInput(encode=make_encoder(backend, 3), max_length=3)
    again, _ = over(handle(spec))
    assert isinstance(again.input, TextInput)
    assert again.input.encode is not None
    assert again.input.max_length == 3
    for text in ("good film", "a good good film", ""):
        assert again.input.encode(text) == spec.encode(text)  # type: ignore[misc]
    assert again.input.encode("good film film good") == EncodedText((1, 2, 2), truncated=True)


def test_a_tokeniser_that_is_code_cannot_be_sent():
    model = handle(TextInput(encode=lambda text: EncodedText((1,))))
    with pytest.raises(IndescribableModel, match="MODEL_SHARING=copy"):
        described(model, None)


def test_a_model_of_the_app_has_its_input_there_already():
    given = handle(TextInput(encode=lambda text: EncodedText((1,))))
    again, _ = over(given, given=given)
    assert again.input is given.input


@pytest.mark.parametrize("told", [["plain", [1]], ["each", [["mapping", [["name", "m"]]]]], ["each", []]])
def test_anything_else_is_refused(told: Any):
    with pytest.raises(FrameError):
        restored(told, memoryview(b""))
