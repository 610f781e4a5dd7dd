"""Models whose answers depend on their neighbours are found out before they serve."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loaders.handle import ModelHandle
from loaders.signature import EncodedText, ImageInput, InputSpec, TabularInput, TensorInput, TextInput
from service.models.examples import varied_rows
from service.models.self_check import difference, self_check


def finding(predict: Any, spec: InputSpec | None = None, batch_size: int = 8) -> str | None:
    model = ModelHandle.from_callable(predict, name="m", input=spec or TabularInput(width=3))
    return self_check(model, batch_size, lambda model, rows, parameters: model.predict_batch(rows, parameters)).finding


def test_a_model_that_treats_each_row_alone_passes():
    assert finding(lambda rows: np.stack(rows).sum(axis=1)) is None


@pytest.mark.parametrize(
    "predict",
    [
        lambda rows: np.stack(rows) - np.stack(rows).mean(axis=0),
        lambda rows: [{"score": row.sum() / len(rows)} for row in rows],
        lambda rows: ["big" if len(rows) > 1 else "small" for _ in rows],
        lambda rows: [list(range(len(rows))) for _ in rows],
        lambda rows: [{str(len(rows)): 1} for _ in rows],
        lambda rows: [len(rows) > 1 for _ in rows],
    ],
    ids=["centred", "shared score", "label", "length", "keys", "flag"],
)
def test_a_model_whose_rows_mix_is_found_out(predict):
    assert finding(predict) is not None
    assert "depends on its neighbours" in str(finding(predict))
    assert "a batch of 8" in str(finding(predict))


def test_a_model_that_remembers_the_last_call_is_found_out():
    calls: list[int] = []

    def predict(rows: list[Any]) -> Any:
        calls.append(len(rows))
        return [len(calls)] * len(rows)

    assert finding(predict, batch_size=1) is not None


def test_noise_in_the_last_digits_is_no_finding():
    assert finding(lambda rows: [row.sum() * (1 + 1e-6 * len(rows)) for row in rows]) is None
    assert "by 0.0" in str(finding(lambda rows: [100 * (1 + 0.01 * len(rows)) for row in rows]))


def test_small_numbers_are_measured_by_their_own_size():
    assert finding(lambda rows: [1e-6 * row.sum() / len(rows) for row in rows]) is not None
    assert finding(lambda rows: [{"a": 1e6, "b": 1.0 + 1e-3 * len(rows)} for row in rows]) is None, "side by side"


def test_a_short_text_is_checked_beside_long_ones():
    def padded(rows: list[EncodedText]) -> list[int]:
        return [max(len(row.ids) for row in rows)] * len(rows)

    spec = TextInput(encode=lambda text: EncodedText(tuple(text.encode())))
    assert finding(padded, spec) is not None
    assert finding(lambda rows: [len(row.ids) for row in rows], spec) is None


def test_less_is_asked_of_a_model_that_computes_in_16_bits():
    def predict(rows: list[Any]) -> Any:
        return [1 + 0.002 * len(rows)] * len(rows)

    spec = TabularInput(width=1)
    coarse = ModelHandle("m", "1", "x", predict, input=spec, metadata={"model": {"dtype": "bfloat16"}})
    fine = ModelHandle("m", "1", "x", predict, input=spec)
    run = lambda model, rows, _: model.predict_batch(rows)  # noqa: E731
    results = [self_check(model, 8, run).finding for model in (coarse, fine)]
    assert results[0] is None
    assert results[1] is not None


def test_what_cannot_be_tried_is_no_finding_and_says_so():
    def refuse(rows: list[Any]) -> Any:
        raise ValueError("no such category")

    run = lambda model, rows, _: model.predict_batch(rows)  # noqa: E731
    for predict, spec, why in [
        (refuse, TabularInput(width=3), "no such category"),
        (lambda rows: [math.nan for _ in rows], TabularInput(width=3), "not finite"),
        (lambda rows: [len(rows) for _ in rows], TabularInput(), "no row can be made up"),
    ]:
        checked = self_check(ModelHandle.from_callable(predict, name="m", input=spec), 8, run)
        assert checked.finding is None
        assert why in str(checked.not_done)


@pytest.mark.parametrize(
    "spec, shape, dtype",
    [
        (TabularInput(width=3, dtype="float32"), (3,), "float32"),
        (ImageInput(height=4, width=6), (3, 4, 6), "float32"),
        (ImageInput(height=4, width=6, layout="NHWC", dtype="uint8"), (4, 6, 3), "uint8"),
        (TensorInput(shape=(2, None), dtype="int64"), (2, 1), "int64"),
        (TensorInput(shape=(5,), dtype="bool"), (5,), "bool"),
    ],
)
def test_made_up_rows_differ_and_are_the_same_each_time(spec, shape, dtype):
    rows = varied_rows(spec, 16)
    again = varied_rows(spec, 16)
    assert rows is not None
    assert again is not None
    assert all((row.shape, row.dtype) == (shape, np.dtype(dtype)) for row in rows)
    assert any(not np.array_equal(rows[0], row) for row in rows)
    assert all(np.array_equal(one, other) for one, other in zip(rows, again, strict=True))


def test_pixels_are_prepared_as_the_model_takes_them():
    spec = ImageInput(height=8, width=8, scale=1.0, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0))
    rows = varied_rows(spec, 4)
    assert rows is not None
    assert -1 < np.min(rows) < -0.9
    assert 0.9 < np.max(rows) <= 1


@pytest.mark.parametrize(
    "alone, together, expected",
    [
        ([1.0], [1.0], 0.0),
        ([1.0], [2.0], 0.5),
        ([[1, 2]], [[1, 2]], 0.0),
        ([[1, 2]], [[1]], math.inf),
        ([{"a": 1}], [{"b": 1}], math.inf),
        ([{"a": "x"}], [{"a": 1}], math.inf),
        (["yes"], ["no"], math.inf),
        (["yes"], ["yes"], 0.0),
        ([np.zeros(3)], [np.zeros(2)], math.inf),
        ([np.zeros(0)], [np.zeros(0)], 0.0),
        ([np.zeros(2)], [np.zeros(2)], 0.0),
        ([{"a": [0.0, 1.0], "b": "x"}], [{"a": [0.0, 2.0], "b": "x"}], 0.5),
        ([[{"label": "a", "score": 1.0}]], [[{"label": "a", "score": 0.5}]], 0.5),
        ([None], [1], math.inf),
        ([0.0, 10.0], [1.0, 10.0], 0.1),
    ],
)
def test_differences_are_shares_of_the_largest_number_and_infinite_between_kinds(alone, together, expected):
    assert difference(alone, together) == expected
