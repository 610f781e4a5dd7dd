"""What a model is said to take and give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, OutputSpec, TabularInput, TensorInput, TextInput
from service.http.v2.describe import config, metadata, platform


def model(input: InputSpec, output: OutputSpec | None = None, **more: Any) -> ModelHandle:
    return ModelHandle(
        "m", "2", more.pop("fmt", "onnx"), predict=list, input=input, output=output or OutputSpec(), **more
    )


def inputs(spec: InputSpec, **more: Any) -> list[tuple[str, str, list[int]]]:
    return [(x["name"], x["datatype"], x["shape"]) for x in metadata(model(spec, **more), ["2"])["inputs"]]


def outputs(spec: OutputSpec, sample: Any = None) -> list[tuple[str, str, list[int]]]:
    described = metadata(model(TextInput(), spec), ["2"], sample)["outputs"]
    return [(x["name"], x["datatype"], x["shape"]) for x in described]


@pytest.mark.parametrize(
    "spec, datatype, shape",
    [
        (TabularInput(width=4, dtype="float32"), "FP32", [-1, 4]),
        (TabularInput(), "FP64", [-1, -1]),
        (TextInput(), "BYTES", [-1, 1]),
        (ImageInput(8, 8), "BYTES", [-1, 1]),
        (TensorInput(shape=(3, None), dtype="uint8"), "UINT8", [-1, 3, -1]),
        (TensorInput(shape=(), dtype="bool"), "BOOL", [-1]),
        (TensorInput(shape=(2,), dtype="float16"), "FP16", [-1, 2]),
        (TensorInput(), "FP32", [-1, -1]),
    ],
)
def test_a_model_without_columns_takes_one_input(spec, datatype, shape):
    assert inputs(spec) == [("input", datatype, shape)]


def test_a_model_with_columns_takes_one_input_for_each_by_what_is_known_of_it():
    assert inputs(TabularInput(columns=("a", "b"), dtype="float32")) == [("a", "FP32", [-1, 1]), ("b", "FP32", [-1, 1])]
    spec = TabularInput(columns=tuple("abcde"), dtype="object")
    known = {"column_types": ("number", "numeric", "boolean", "text", None)}
    assert [datatype for _, datatype, _ in inputs(spec, metadata=known)] == ["FP64", "FP64", "BOOL", "BYTES", "BYTES"]
    assert [datatype for _, datatype, _ in inputs(spec)] == ["BYTES"] * 5


def test_outputs_are_told_by_the_prediction_of_one_row():
    assert outputs(OutputSpec(), np.zeros((2, 3), np.float32)) == [("output", "FP32", [-1, 2, 3])]
    assert outputs(OutputSpec(), 1.5) == [("output", "FP64", [-1])]
    sample = [{"label": "a", "score": 0.5}, {"label": "b", "score": 0.5}]
    assert outputs(OutputSpec(), sample) == [("label", "BYTES", [-1, 2]), ("score", "FP64", [-1, 2])]


def test_without_a_sample_only_classes_are_known():
    def spec(**more: Any) -> OutputSpec:
        return OutputSpec(task="classification", **more)

    assert outputs(spec(labels=("a", "b"))) == [("label", "BYTES", [-1]), ("score", "FP64", [-1])]
    assert outputs(spec(labels=("a", "b"), top_k=5)) == [("label", "BYTES", [-1, 2]), ("score", "FP64", [-1, 2])]
    assert outputs(spec(top_k=5)) == [("label", "INT64", [-1, -1]), ("score", "FP64", [-1, -1])]
    assert outputs(OutputSpec(task="regression")) == []


def test_a_prediction_that_is_no_tensor_describes_nothing():
    assert outputs(OutputSpec(), [1, "a"]) == []


def test_the_metadata_names_model_versions_and_platform():
    described = metadata(model(TextInput()), ["1", "2"])
    assert {key: described[key] for key in ("name", "versions", "platform")} == {
        "name": "m",
        "versions": ["1", "2"],
        "platform": "onnxruntime_onnx",
    }
    assert platform(model(TextInput(), fmt="callable")) == "python_callable"


def test_the_configuration_leaves_out_the_dimension_of_the_rows_and_shows_that_rows_are_batched():
    handle = model(TabularInput(width=4, dtype="float32"), OutputSpec(task="classification", labels=("a", "b")))
    assert config(handle, max_batch_size=8, max_batch_latency_ms=2.5) == {
        "name": "m",
        "platform": "onnxruntime_onnx",
        "max_batch_size": 8,
        "input": [{"name": "input", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [
            {"name": "label", "data_type": "TYPE_STRING", "dims": []},
            {"name": "score", "data_type": "TYPE_FP64", "dims": []},
        ],
        "dynamic_batching": {"preferred_batch_size": [8], "max_queue_delay_microseconds": 2500},
    }


def test_columns_have_the_datatype_of_what_is_known_of_them() -> None:
    kinds = {
        "number": "FP64",
        "float32": "FP32",
        "integer": "INT64",
        "numeric": "FP64",
        "boolean": "BOOL",
        "text": "BYTES",
    }
    spec = TabularInput(columns=tuple(kinds), dtype="object")
    assert inputs(spec, metadata={"column_types": tuple(kinds)}) == [
        (kind, name, [-1, 1]) for kind, name in kinds.items()
    ]
