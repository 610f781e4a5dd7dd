from __future__ import annotations

import numpy as np
import pytest

from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from loaders.signature import EncodedText, ImageInput, OutputSpec, TabularInput, TensorInput, TextInput
from service.models.examples import example_row
from service.models.warmup import warm_up


@pytest.mark.parametrize(
    "spec, shape, dtype",
    [
        (TabularInput(width=3), (3,), "float64"),
        (TabularInput(width=2, dtype="float32"), (2,), "float32"),
        (ImageInput(height=4, width=6), (3, 4, 6), "float32"),
        (ImageInput(height=4, width=6, layout="NHWC", dtype="uint8"), (4, 6, 3), "uint8"),
        (ImageInput(height=4, width=6, resize_shorter=8, crop=(5, 7)), (3, 5, 7), "float32"),
        (TensorInput(shape=(2, None), dtype="int64"), (2, 1), "int64"),
        (TensorInput(shape=(), dtype="bool"), (), "bool"),
    ],
)
def test_a_row_of_zeros_has_the_shape_that_the_model_takes(spec, shape, dtype):
    row = example_row(spec)
    assert (row.shape, row.dtype) == (shape, np.dtype(dtype))
    assert not row.any()


def test_a_text_is_tokenised_like_any_other():
    assert example_row(TextInput()) == "warm up"
    row = example_row(TextInput(encode=lambda text: EncodedText(tuple(text.encode()))))
    assert row == EncodedText(tuple(b"warm up"))


@pytest.mark.parametrize("spec", [TabularInput(), TabularInput(width=2, dtype="object"), TensorInput()])
def test_where_too_little_is_known_no_row_is_made_up(spec):
    assert example_row(spec) is None
    calls: list[int] = []
    warm_up(
        ModelHandle.from_callable(len, name="m", input=spec), 8, lambda model, rows, _: calls.append(len(rows)) or rows
    )
    assert calls == []


@pytest.mark.parametrize("largest, sizes", [(8, [1, 8]), (1, [1])])
def test_a_batch_of_one_and_a_full_batch_are_run(largest, sizes):
    calls: list[int] = []
    model = ModelHandle.from_callable(len, name="m", input=TabularInput(width=2))
    warm_up(model, largest, lambda model, rows, _: calls.append(len(rows)) or rows)
    assert calls == sizes


@pytest.mark.parametrize(
    "largest, buckets, sizes",
    [(8, (2, 4, 8), [1, 2, 4, 8]), (5, (1, 4, 6, 9), [1, 4, 5, 6]), (4, (16,), [1, 4, 16]), (4, (), [1, 4])],
)
def test_every_size_that_a_batch_can_be_filled_up_to_is_run(largest, buckets, sizes):
    calls: list[int] = []
    model = ModelHandle.from_callable(len, name="m", input=TabularInput(width=2))
    warm_up(model, largest, lambda model, rows, _: calls.append(len(rows)) or rows, buckets)
    assert calls == sizes


@pytest.mark.parametrize(
    "spec, described",
    [
        (TabularInput(width=2), "zeros of shape [2] and type float64"),
        (TensorInput((3, None), "int64"), "zeros of shape [3, 1] and type int64"),
        (TextInput(), 'the text "warm up"'),
    ],
)
@pytest.mark.parametrize("fails_at, batch", [(1, "1 row"), (4, "4 rows")])
def test_a_failure_says_on_what_and_how_to_start_without(spec, described, fails_at, batch):
    def fail(model, rows, parameters):
        if len(rows) == fails_at:
            raise ValueError("zero")
        return [0] * len(rows)

    with pytest.raises(ModelLoadError) as caught:
        warm_up(ModelHandle.from_callable(len, name="m", input=spec), 4, fail)
    assert isinstance(caught.value.__cause__, ValueError)
    for part in (f"the warm-up batch of {batch}", described, "ValueError: zero", "WARMUP=false"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "results, said",
    [
        (lambda rows: None, "gave a NoneType; a model gives one result for each row"),
        (lambda rows: 5, "gave a int"),
        (lambda rows: rows[:-1], "gave 0 results"),
        (lambda rows: [object() for _ in rows], "a value of type object, which JSON cannot hold"),
    ],
)
def test_a_model_whose_results_can_be_no_predictions_is_refused(results, said):
    model = ModelHandle.from_callable(results, name="m", input=TabularInput(width=2))
    with pytest.raises(ModelLoadError, match=said):
        warm_up(model, 4, lambda model, rows, _: model.predict_batch(rows))


def test_labels_that_do_not_fit_the_scores_are_refused():
    spec = OutputSpec(task="classification", labels=("a", "b"))
    model = ModelHandle.from_callable(
        lambda rows: np.ones((len(rows), 3)), name="m", input=TabularInput(width=2), output=spec
    )
    with pytest.raises(ModelLoadError, match="3 scores for the 2 declared labels"):
        warm_up(model, 4, lambda model, rows, _: model.predict_batch(rows))


def test_the_prediction_for_a_made_up_row_comes_back():
    model = ModelHandle.from_callable(lambda rows: np.stack(rows) + 1, name="m", input=TabularInput(width=2))
    prediction = warm_up(model, 4, lambda model, rows, _: model.predict_batch(rows))
    assert np.array_equal(prediction, [1, 1])


def test_a_number_that_is_not_finite_may_be_right_for_zeros(caplog):
    model = ModelHandle.from_callable(lambda rows: [float("nan")] * len(rows), name="m", input=TabularInput(width=2))
    assert warm_up(model, 4, lambda model, rows, _: model.predict_batch(rows)) is None
    assert "not finite" in caplog.text
