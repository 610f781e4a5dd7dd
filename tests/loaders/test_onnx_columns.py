"""ONNX models with one input per column, as skl2onnx writes a pipeline over a data frame."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_makers import value_onnx
from real_models import LIMITS

from loaders import ModelHandle, ModelLoadError, TabularInput, load_model
from service.errors import InvalidInput
from service.inputs import prepare
from service.inputs.example import example_instance
from service.outputs import present

pandas = pytest.importorskip("pandas")

FRAME = pandas.DataFrame(
    {
        "age": np.array([3.5, 40, 50, 60, 21, 33]),
        "city": ["Graz", "Bern", "Ulm"] * 2,
        "rooms": [1, 2, 3, 1, 2, 3],
        "area": np.array([30.0, 41, 52, 33, 44, 55], np.float32),
    }
)
ANSWERS = ["no", "yes", "yes", "no", "no", "yes"]


@pytest.fixture(scope="module")
def fitted() -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns = make_column_transformer(
        (StandardScaler(), ["age", "area"]), (OneHotEncoder(handle_unknown="ignore"), ["city", "rooms"])
    )
    return make_pipeline(columns, LogisticRegression()).fit(FRAME, ANSWERS)


@pytest.fixture(scope="module")
def exported_pipeline(fitted: Any, models: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

        types = [
            ("age", FloatTensorType([None, 1])),
            ("city", StringTensorType([None, 1])),
            ("rooms", Int64TensorType([None, 1])),
            ("area", FloatTensorType([None, 1])),
        ]
        model = to_onnx(fitted, initial_types=types, target_opset=18)
    path = models / "columns.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def asked(model: ModelHandle, instances: list[Any]) -> list[Any]:
    rows = prepare(model.input, instances, LIMITS, model.metadata["column_types"])
    return [present(model.output, result) for result in model.predict_batch([row.payload for row in rows])]


def test_rows_are_objects_of_columns_and_answered_as_by_the_pipeline(
    bundle: Callable[..., Path], exported_pipeline: Path, fitted: Any
) -> None:
    toml = '[model]\nfile = "columns.onnx"\n[output]\ntask = "classification"\ntop_k = 2\n'
    model = load_model(bundle(toml, exported_pipeline), device="cpu")
    assert model.input == TabularInput(columns=("age", "city", "rooms", "area"), width=4, dtype="object")
    rows = FRAME.to_dict("records")
    for given, own in zip(asked(model, rows), fitted.predict_proba(FRAME), strict=True):
        expected = dict(zip(fitted.classes_, own, strict=True))
        assert {each["label"]: each["score"] for each in given} == pytest.approx(expected, abs=1e-5)
    assert asked(model, [[3.5, "Graz", 1, 30]]) == asked(model, rows[:1])


def test_without_an_output_table_the_outputs_come_by_name(exported_pipeline: Path, fitted: Any) -> None:
    model = load_model(exported_pipeline, device="cpu")
    given = asked(model, FRAME.to_dict("records"))
    assert [each["output_label"] for each in given] == fitted.predict(FRAME).tolist()
    assert len(asked(model, [example_instance(model.input, model.metadata["column_types"])])) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"city": 3}, "must be a string, not a number"),
        ({"rooms": 1.5}, "must be a whole number: the model takes int64"),
        ({"rooms": "1"}, "must be a whole number, not a string"),
        ({"rooms": 2**63}, "is out of the range of int64"),
        ({"age": 1e39}, "is out of the range of float32"),
        ({"age": True}, "must be a number, not a boolean"),
    ],
)
def test_a_value_of_another_type_is_refused_at_the_door(
    exported_pipeline: Path, wrong: dict[str, Any], said: str
) -> None:
    model = load_model(exported_pipeline, device="cpu")
    with pytest.raises(InvalidInput, match=said) as caught:
        asked(model, [FRAME.to_dict("records")[0] | wrong])
    assert caught.value.faults[0].loc == f"instances[0].{next(iter(wrong))}"


def test_nulls_are_taken_in_columns_of_floating_point_numbers_only(
    bundle: Callable[..., Path], exported_pipeline: Path, tmp_path: Path
) -> None:
    toml = "[input]\nallow_null = true\n"
    model = load_model(bundle(toml, exported_pipeline), device="cpu")
    assert isinstance(model.input, TabularInput)
    assert model.input.without_null == (0, 1, 2, 3)  # without an imputer NaN comes out where it goes in


@pytest.mark.parametrize("kind", ["BOOL", "INT64", "STRING"])
def test_a_missing_value_is_never_read_as_another_value(bundle: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    nodes = [("Identity", ["a"], "x", {}), ("Identity", ["b"], "y", {})]
    path = value_onnx(tmp_path / "m.onnx", nodes, inputs=["a", "b"], outputs=["x", "y"], kind=kind, row=[1])
    model = load_model(bundle("[input]\nallow_null = true\n", path), device="cpu")
    assert isinstance(model.input, TabularInput)
    assert model.input.without_null == (0, 1)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("FLOAT", "float32"), ("DOUBLE", "float64"), ("INT64", "object"), ("STRING", "object")]
)
@pytest.mark.parametrize("row", [[1], []])
def test_columns_of_one_type_are_rows_of_that_type(tmp_path: Path, kind: str, dtype: str, row: list[int]) -> None:
    nodes = [("Identity", ["a"], "x", {}), ("Identity", ["b"], "y", {})]
    model = load_model(
        value_onnx(tmp_path / "m.onnx", nodes, inputs=["a", "b"], outputs=["x", "y"], kind=kind, row=row)
    )
    assert model.input == TabularInput(columns=("a", "b"), width=2, dtype=dtype)
    value = "t" if kind == "STRING" else 3
    (given,) = asked(model, [{"b": value, "a": value}])
    assert [np.ravel(given[name]).tolist() for name in ("x", "y")] == [[value], [value]]


@pytest.mark.parametrize("change", [{"row": [2]}, {"batch": 3, "row": [1]}, {"kind": "FLOAT16", "row": [1]}])
def test_other_inputs_are_no_columns(tmp_path: Path, change: dict[str, Any]) -> None:
    path = value_onnx(tmp_path / "m.onnx", [("Add", ["x", "z"], "y", {})], inputs=["x", "z"], outputs=["y"], **change)
    with pytest.raises(ModelLoadError, match=r"takes 2 inputs \(x, z\).* one of shape \[batch, 1\] for each column"):
        load_model(path)
