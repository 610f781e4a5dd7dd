"""What a bundle declares is kept, unless the model cannot be what it says."""

from __future__ import annotations

from typing import Any

import pytest

from loaders import ImageInput, InputSpec, ModelHandle, ModelLoadError, OutputSpec, TabularInput, TensorInput, TextInput
from loaders.declared import with_declared
from loaders.signature import EncodedText
from loaders.tables import BundleTables

TOKENS = TextInput(encode=lambda text: EncodedText((len(text),)), max_length=512)


def declared(
    input: dict[str, Any] | None = None,
    output: dict[str, Any] | None = None,
    *,
    found: InputSpec | None = None,
    gives: OutputSpec | None = None,
    metadata: dict[str, Any] | None = None,
) -> ModelHandle:
    tables: dict[str, Any] = {"input": input, "output": output}
    handle = ModelHandle("m", "1", "test", list, found or TensorInput(), gives or OutputSpec(), metadata=metadata or {})
    return with_declared(handle, BundleTables.model_validate(tables))


def test_nothing_declared_changes_nothing() -> None:
    found, gives = TabularInput(width=4), OutputSpec(task="embedding")
    handle = declared(found=found, gives=gives)
    assert (handle.input, handle.output) == (found, gives)


@pytest.mark.parametrize(
    ("table", "found", "spec"),
    [
        ({}, TabularInput(("a",), 1, dtype="object"), TabularInput(("a",), 1, dtype="object")),
        ({"columns": ["a", "b"]}, TabularInput(width=2), TabularInput(("a", "b"), 2)),
        ({"width": 3}, TensorInput(), TabularInput(width=3, dtype="float32")),
        ({"width": 3}, TensorInput(dtype="int64"), TabularInput(width=3)),
        ({"dtype": "float64"}, TensorInput(shape=(3,)), TabularInput(dtype="float64")),
        ({"allow_null": True}, TabularInput(width=2), TabularInput(width=2, allow_null=True)),
        ({"allow_null": False}, TabularInput(allow_null=True), TabularInput()),
    ],
)
def test_tabular_rows_are_what_bundle_and_model_say_together(
    table: dict[str, Any], found: InputSpec, spec: TabularInput
) -> None:
    assert declared({"kind": "tabular", **table}, found=found).input == spec


@pytest.mark.parametrize(
    ("table", "found", "spec"),
    [
        ({"shape": [3, -1]}, TensorInput(), TensorInput((3, None))),
        ({}, TensorInput((3,), "int64"), TensorInput((3,), "int64")),
        ({}, TabularInput(width=3), TensorInput((3,), "float64")),
        ({"dtype": "uint8"}, TextInput(), TensorInput(None, "uint8")),
        ({"shape": [4, -1]}, TensorInput((None, 5)), TensorInput((4, None))),
    ],
)
def test_tensor_rows_are_what_bundle_and_model_say_together(
    table: dict[str, Any], found: InputSpec, spec: TensorInput
) -> None:
    assert declared({"kind": "tensor", **table}, found=found).input == spec


def test_a_text_keeps_the_models_tokenizer_and_the_shorter_length() -> None:
    spec = declared({"kind": "text", "max_length": 9, "pad_to_multiple_of": 4}, found=TOKENS).input
    assert spec == TextInput(TOKENS.encode, 9, 4)
    assert declared({"kind": "text", "max_length": 900}, found=TOKENS).input == TOKENS
    assert declared({"kind": "text"}, found=TabularInput()).input == TextInput()


@pytest.mark.parametrize(
    ("table", "spec"),
    [
        ({"size": [4, 6]}, ImageInput(4, 6)),
        ({"size": [4, 6], "resize_shorter": 8}, ImageInput(4, 6, resize_shorter=8, crop=(4, 6))),
        ({"crop": [4, 6], "resize_shorter": 8}, ImageInput(4, 6, resize_shorter=8, crop=(4, 6))),
        (
            {"size": [4, 6], "layout": "NHWC", "dtype": "uint8", "scale": 1, "mean": [1, 2, 3], "std": [4, 5, 6.5]},
            ImageInput(4, 6, layout="NHWC", dtype="uint8", scale=1.0, mean=(1, 2, 3), std=(4, 5, 6.5)),
        ),
    ],
)
def test_an_image_is_what_the_bundle_says(table: dict[str, Any], spec: ImageInput) -> None:
    assert declared({"kind": "image", **table}).input == spec


@pytest.mark.parametrize(
    ("table", "found", "key"),
    [
        (
            {"kind": "tabular", "width": 5},
            TabularInput(width=4),
            "width: the bundle says .5., but the model",
        ),
        ({"kind": "tabular", "columns": ["a"]}, TabularInput(width=4), "columns"),
        ({"kind": "tabular", "columns": ["a"], "width": 2}, TabularInput(), "width"),
        ({"kind": "tabular", "columns": ["b", "a"]}, TabularInput(("a", "b"), 2), "columns"),
        ({"kind": "tabular", "width": 5}, TabularInput(("a", "b"), 2), "width"),
        ({"kind": "tabular", "width": 5}, TensorInput((3, 4, 4)), "width"),
        ({"kind": "tensor", "shape": [3]}, TensorInput((4,)), "shape"),
        ({"kind": "tensor", "shape": [-1]}, TensorInput((4, 4)), "shape"),
        ({"kind": "text"}, TabularInput(width=4), "kind"),
        ({"kind": "tensor"}, TOKENS, "kind"),
        ({"kind": "image", "size": [4, 4]}, TensorInput((3, 8, 8)), "size"),
        ({"kind": "image", "size": [4, 4], "layout": "NHWC"}, TensorInput((3, 4, 4)), "size"),
        ({"kind": "image"}, TensorInput(), "size"),
        ({"kind": "image", "size": [4, 4], "crop": [2, 2]}, TensorInput(), "crop"),
        ({"kind": "image", "crop": [2, 2]}, TensorInput(), "crop"),
        ({"kind": "image", "size": [4, 9], "resize_shorter": 8}, TensorInput(), "resize_shorter"),
    ],
)
def test_a_contradiction_is_told_with_its_key(table: dict[str, Any], found: InputSpec, key: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"\[input\] {key}"):
        declared(table, found=found)


SCORES = OutputSpec(task="classification", labels=("a", "b"), softmax=True)


@pytest.mark.parametrize(
    ("table", "gives", "spec"),
    [
        ({}, SCORES, SCORES),
        ({"top_k": 2}, SCORES, OutputSpec("classification", ("a", "b"), 2, True)),
        ({"labels": ["x", "y"], "softmax": False}, SCORES, OutputSpec("classification", ("x", "y"))),
        ({"labels": ["x", "y"]}, OutputSpec(), OutputSpec("classification", ("x", "y"))),
        ({"task": "embedding"}, SCORES, OutputSpec("embedding")),
        ({"task": "regression"}, OutputSpec(), OutputSpec("regression")),
        ({}, OutputSpec(), OutputSpec()),
    ],
)
def test_an_output_is_what_bundle_and_model_say_together(
    table: dict[str, Any], gives: OutputSpec, spec: OutputSpec
) -> None:
    assert declared(output=table, gives=gives).output == spec


@pytest.mark.parametrize(
    ("table", "metadata", "key"),
    [
        ({"labels": ["a"]}, {"classes": [0, 1]}, "labels: the bundle says 1, but the model has 2"),
        ({"labels": ["a"], "top_k": 2}, {}, "top_k"),
    ],
)
def test_an_output_that_cannot_be_is_told_with_its_key(
    table: dict[str, Any], metadata: dict[str, Any], key: str
) -> None:
    with pytest.raises(ModelLoadError, match=rf"\[output\] {key}"):
        declared(output=table, metadata=metadata)


def test_the_classes_of_several_outputs_are_not_counted_against_the_labels() -> None:
    assert declared(output={"labels": ["a"]}, metadata={"classes": [["x", "y"], ["z"]]}).output.labels == ("a",)


@pytest.mark.parametrize(
    ("multiple", "limit", "longest", "length"),
    [
        (None, None, 7, 7),
        (8, None, 7, 8),
        (8, None, 8, 8),
        (8, 12, 9, 12),
        (8, 12, 12, 12),
        (None, None, 0, 1),
        (8, 4, 9, 9),
    ],
)
def test_a_batch_is_padded_to_a_multiple_but_not_past_the_limit(
    multiple: int | None, limit: int | None, longest: int, length: int
) -> None:
    assert TextInput(None, limit, multiple).padded_length(longest) == length
