"""Where nulls are allowed, a column in which the model fails on one is known before the first request."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_makers import value_onnx

from loaders import ModelHandle, TabularInput, load_model
from loaders.missing import with_columns_without_null

DATA = np.random.default_rng(1).normal(size=(40, 3))
ALLOWED = "[input]\nallow_null = true\n"


def without_null(model: ModelHandle) -> tuple[int, ...]:
    assert isinstance(model.input, TabularInput)
    return model.input.without_null


def sums(rows: list[Any]) -> list[float]:
    """Takes no null in the second column, and answers with NaN to one in the third."""
    if any(np.isnan(row[1]) for row in rows):
        raise ValueError("no")
    return [float(np.nan_to_num(row[0]) + row[2]) for row in rows]


def of_function(fn: Any, **spec: Any) -> tuple[int, ...]:
    spec = {"width": 3, "allow_null": True, **spec}
    return without_null(with_columns_without_null(ModelHandle.from_callable(fn, name="m", input=TabularInput(**spec))))


def test_an_error_and_a_nan_are_both_no_answer() -> None:
    assert of_function(sums) == (1, 2)


def test_nothing_is_asked_where_no_null_is_allowed_or_nothing_can_be_asked() -> None:
    calls: list[Any] = []
    for spec in ({"allow_null": False}, {"width": None}, {"width": 257}):
        assert of_function(lambda rows: calls.append(rows), **spec) == ()
    assert calls == []


def test_a_model_that_fails_on_any_made_up_row_tells_nothing() -> None:
    def fails(rows: list[Any]) -> Any:
        raise ValueError("no")

    assert of_function(fails) == ()


def test_a_model_that_takes_all_nulls_is_asked_twice_only() -> None:
    calls: list[Any] = []
    assert of_function(lambda rows: calls.append(rows) or [{"a": 1.0, "b": "x"}]) == ()
    assert len(calls) == 2


@pytest.mark.parametrize(("name", "expected"), [("trees", ()), ("linear", (0, 1, 2)), ("imputed", ())])
def test_estimators_of_plain_arrays_are_known_too(
    bundle: Callable[..., Path], tmp_path: Path, name: str, expected: tuple[int, ...]
) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline

    model = {
        "trees": HistGradientBoostingRegressor(max_iter=2),
        "linear": LinearRegression(),
        "imputed": make_pipeline(SimpleImputer(), LinearRegression()),
    }[name]
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(model.fit(DATA, DATA[:, 0])))
    assert without_null(load_model(bundle(ALLOWED, tmp_path / "m.pkl"), allow_pickle=True)) == expected


def test_an_onnx_model_that_answers_nan_is_known(bundle: Callable[..., Path], tmp_path: Path) -> None:
    path = value_onnx(tmp_path / "m.onnx", [("Identity", ["x"], "y", {})], outputs=["y"])
    assert without_null(load_model(bundle(ALLOWED, path), device="cpu")) == (0, 1, 2, 3)
