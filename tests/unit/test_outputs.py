from __future__ import annotations

import datetime as dt
import math
from collections import namedtuple
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from loaders.signature import OutputSpec
from service.errors import ModelFailed, NonFiniteOutput, PredictionFailed
from service.outputs import present

RAW = OutputSpec()
CLASSES = OutputSpec(task="classification", labels=("no", "maybe", "yes"))


def as_json(raw: Any, spec: OutputSpec = RAW) -> str:
    return orjson.dumps(present(spec, raw), option=orjson.OPT_SERIALIZE_NUMPY).decode()


@pytest.mark.parametrize(
    "raw, expected",
    [
        (np.int64(-3), "-3"),
        (np.uint64(2**64 - 1), "18446744073709551615"),
        (np.float64(0.1), "0.1"),
        (np.float32(0.1), "0.1"),
        (np.float16(0.1), "0.099975586"),
        (np.longdouble(0.5), "0.5"),
        (np.bool_(True), "true"),
        (np.str_("yes"), '"yes"'),
        (np.datetime64("2024-02-29T12:30"), '"2024-02-29T12:30"'),
        (dt.date(2024, 2, 29), '"2024-02-29"'),
        (dt.datetime(2024, 2, 29, 1, 2, 3), '"2024-02-29T01:02:03"'),
        (np.array(7.5), "7.5"),
        (np.array([1, 2], np.int8), "[1,2]"),
        (np.array([0.1, 2], np.float32), "[0.1,2.0]"),
        (np.array([0.1], np.float16), "[0.099975586]"),
        (np.array([0.5], np.longdouble), "[0.5]"),
        (np.array([True, False]), "[true,false]"),
        (np.array(["no", "yes"]), '["no","yes"]'),
        (np.array(["no", None], object), '["no",null]'),
        (np.array(["2024-01-01"], "datetime64[D]"), '["2024-01-01"]'),
        (np.zeros((2, 0)), "[[],[]]"),
        ({"a": np.array([1.5]), 1: np.float32(0.1), np.int64(2): None}, '{"a":[1.5],"1":0.1,"2":null}'),
        ((1, [2.5, (True, "x")], None), '[1,[2.5,[true,"x"]],null]'),
        (namedtuple("Point", "x y")(1, 2), "[1,2]"),
        ([np.array([[1]]), np.float64(2)], "[[[1]],2.0]"),
    ],
)
def test_every_type_a_model_uses_becomes_plain_json(raw, expected):
    assert as_json(raw) == expected


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.arange(6, dtype=np.float32)[::2],
        np.arange(3, dtype=">f4"),
        np.arange(3, dtype=">i8"),
        np.frombuffer(b"\0" + np.arange(3, dtype=np.float32).tobytes(), np.float32, offset=1),
    ],
)
def test_an_array_the_encoder_would_refuse_is_brought_into_its_form(array):
    assert orjson.loads(as_json(array)) == array.tolist()


def test_an_array_the_encoder_takes_is_handed_on_without_a_copy():
    array = np.ones(3, np.float32)
    assert present(RAW, array) is array


@given(npst.arrays(np.float32, 3, elements=st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_float32_numbers_come_back_with_identical_bits(array):
    back = np.array(orjson.loads(as_json(array)), np.float32)
    np.testing.assert_array_equal(back.view(np.uint32), array.view(np.uint32))
    scalar = np.float32(orjson.loads(as_json(array[0])))
    assert scalar.tobytes() == array[0].tobytes()


@pytest.mark.parametrize(
    "raw",
    [
        math.nan,
        -math.inf,
        np.float32("nan"),
        np.array([1.0, np.inf]),
        np.array([1, np.nan], np.float16),
        np.array(np.nan),
        np.array([1.0, None, math.nan], object),
        {"a": [1.0, {"b": (np.inf,)}]},
        np.datetime64("NaT"),
        np.array(["NaT"], "datetime64[s]"),
    ],
)
@pytest.mark.parametrize("spec", [RAW, OutputSpec(task="classification", softmax=True)])
def test_a_number_that_is_not_finite_anywhere_is_an_error(spec, raw):
    with pytest.raises(NonFiniteOutput):
        present(spec, raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"x",
        {1, 2},
        object(),
        1j,
        np.array([1j]),
        np.array([b"x"]),
        np.zeros(1, [("a", int)]),
        np.timedelta64(1, "s"),
        [1, {"a": b"x"}],
        {b"key": 1},
        {None: 1},
        {True: 1},
        {1: 1, "1": 2},
        2**64,
        -(2**63) - 1,
        "\ud800",
        {"\ud800": 1},
    ],
)
def test_what_json_cannot_hold_is_the_models_failure(raw):
    with pytest.raises(ModelFailed, match="the model") as caught:
        present(RAW, raw)
    assert isinstance(caught.value, PredictionFailed)


def test_a_result_that_contains_itself_is_an_error():
    endless: list[Any] = []
    endless.append(endless)
    array = np.empty(1, object)
    array[0] = array
    for raw in (endless, array):
        with pytest.raises(ModelFailed, match="nested"):
            present(RAW, raw)


@pytest.mark.parametrize("n", [1, 5])
def test_the_shape_of_a_row_does_not_depend_on_how_many_rows_there_are(n):
    assert [as_json(row) for row in np.ones(n)] == ["1.0"] * n
    assert [as_json(row) for row in np.ones((n, 1))] == ["[1.0]"] * n


def test_a_classification_gives_the_best_label_with_its_score():
    assert present(CLASSES, np.array([0.1, 0.2, 0.7], np.float32)) == {"label": "yes", "score": 0.7}
    assert present(CLASSES, [0, 3, 1]) == {"label": "maybe", "score": 3.0}
    assert present(CLASSES, (np.float64(0.5), 0.25, 0.25)) == {"label": "no", "score": 0.5}


def test_without_labels_the_index_of_the_class_is_its_label():
    assert present(OutputSpec(task="classification"), np.array([0.1, 0.9])) == {"label": 1, "score": 0.9}


@pytest.mark.parametrize("top_k, expected", [(1, ["yes"]), (2, ["yes", "no"]), (9, ["yes", "no", "maybe"])])
def test_top_k_gives_the_best_first_and_ties_in_class_order(top_k, expected):
    spec = OutputSpec(task="classification", labels=CLASSES.labels, top_k=top_k)
    best = present(spec, np.array([0.25, 0.25, 0.5]))
    assert [entry["label"] for entry in best] == expected
    assert best[0] == {"label": "yes", "score": 0.5}


@given(npst.arrays(np.float32, 3, elements=st.floats(-1e6, 1e6, width=32)))
def test_softmax_turns_any_logits_into_probabilities_in_the_same_order(logits):
    spec = OutputSpec(task="classification", softmax=True, top_k=3)
    scores = [entry["score"] for entry in present(spec, logits)]
    assert sum(scores) == pytest.approx(1.0, abs=1e-5)
    assert scores == sorted(scores, reverse=True)


def test_softmax_agrees_with_its_formula():
    spec = OutputSpec(task="classification", softmax=True)
    assert present(spec, np.array([0.0, math.log(3)])) == {"label": 1, "score": pytest.approx(0.75)}


@pytest.mark.parametrize("raw, expected", [("yes", '"yes"'), (np.int64(3), "3"), (None, "null"), ([], "[]")])
def test_a_finished_label_is_presented_as_it_is(raw, expected):
    assert as_json(raw, CLASSES) == expected


def test_scores_of_more_dimensions_are_presented_raw():
    assert as_json(np.array([[0.5, 0.5]]), CLASSES) == "[[0.5,0.5]]"


def test_labels_of_another_number_than_the_scores_are_an_error():
    with pytest.raises(ModelFailed, match="2 scores for the 3 declared labels"):
        present(CLASSES, np.array([0.5, 0.5]))


def test_each_of_several_heads_is_classified_where_the_labels_fit_it():
    raw = {"mood": np.array([0.0, 0.0, 1.0]), "size": np.array([1.5, 2.5]), "id": np.int64(4), "note": [[1.0]]}
    assert orjson.loads(as_json(raw, CLASSES)) == {
        "mood": {"label": "yes", "score": 1.0},
        "size": [1.5, 2.5],
        "id": 4,
        "note": [[1.0]],
    }


def test_scores_by_label_are_put_into_the_declared_order():
    by_label = {"yes": 0.2, "no": 0.2, "maybe": 0.6}
    assert present(CLASSES, by_label) == {"label": "maybe", "score": 0.6}
    assert present(CLASSES, {"probabilities": by_label, "label": "maybe"}) == {
        "probabilities": {"label": "maybe", "score": 0.6},
        "label": "maybe",
    }
    digits = OutputSpec(task="classification", labels=("0", "1"), top_k=2)
    assert present(digits, {1: np.float32(0.2), 0: np.float32(0.8)})[0] == {"label": "0", "score": 0.8}


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(plain)
def test_what_is_plain_json_already_is_not_changed(raw):
    assert present(RAW, raw) == raw


anything = st.recursive(
    st.none() | st.floats() | st.integers() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.integers() | st.text() | st.binary(), inner),
    max_leaves=8,
)


@given(
    anything | npst.arrays(npst.scalar_dtypes(), npst.array_shapes(max_dims=2, max_side=3)),
    st.sampled_from([RAW, CLASSES]),
)
def test_any_result_is_written_as_strict_json_or_is_the_models_failure(raw, spec):
    try:
        text = as_json(raw, spec)
    except PredictionFailed:
        return
    orjson.loads(text)


# --- results of other packages ---------------------------------------------------------------------------------


def test_tensors_of_torch_become_plain_json():
    torch = pytest.importorskip("torch")
    for raw, expected in (
        (torch.tensor([0.1, 2.0]), "[0.1,2.0]"),
        (torch.tensor([0.1, 2.0], requires_grad=True), "[0.1,2.0]"),
        (torch.tensor([0.1, 2.0], requires_grad=True) * 1, "[0.1,2.0]"),
        (torch.tensor(3), "3"),
        (torch.tensor(True), "true"),
        (torch.tensor([0.5, 2.0], dtype=torch.bfloat16), "[0.5,2.0]"),
        (torch.eye(2).to_sparse(), None),
        (torch.tensor([1 + 1j]).conj(), None),
        (torch.zeros(2, device="meta"), None),
        ([torch.tensor(1.5), {"a": torch.tensor([1])}], '[1.5,{"a":[1]}]'),
    ):
        if expected is None:
            with pytest.raises(ModelFailed, match="cannot hold"):
                present(RAW, raw)
        else:
            assert as_json(raw) == expected
    with pytest.raises(NonFiniteOutput):
        present(RAW, torch.tensor([math.nan]))


def test_tensors_of_torch_are_classified_like_arrays():
    torch = pytest.importorskip("torch")
    best = {"label": "yes", "score": 0.75}
    assert present(CLASSES, torch.tensor([0.0, 0.25, 0.75], requires_grad=True)) == best
    assert present(CLASSES, [torch.tensor(0.0), torch.tensor(0.25), torch.tensor(0.75)]) == best
    assert present(CLASSES, {"head": torch.tensor([0.0, 0.25, 0.75])}) == {"head": best}


@pytest.mark.parametrize("spec", [RAW, OutputSpec(task="classification")])
def test_masked_values_are_missing_and_the_others_plain(spec):
    for raw in (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.masked, [np.ma.masked], {"a": np.ma.array([1], mask=True)}):
        with pytest.raises(NonFiniteOutput, match="masked"):
            present(spec, raw)
    assert as_json(np.ma.array([1.5, 2.0], mask=[0, 0])) == "[1.5,2.0]"


def test_subclasses_of_arrays_become_plain_json(tmp_path):
    held = np.memmap(tmp_path / "x", np.float32, "w+", shape=2)
    held[:] = 1.5
    assert as_json(held) == "[1.5,1.5]"


def test_values_of_pandas_become_plain_json():
    pandas = pytest.importorskip("pandas")
    assert as_json(pandas.Series([1, 2.5], index=["a", "b"])) == "[1.0,2.5]"
    assert as_json(pandas.Series(["a", "b"])) == '["a","b"]'
    assert as_json(pandas.Timestamp("2024-02-29")) == '"2024-02-29T00:00:00"'
    gap = pandas.Series([1, None], dtype="Int64")
    for missing in (pandas.NaT, [pandas.NaT], pandas.Series([1.0, None]), pandas.Series([pandas.NaT]), gap):
        with pytest.raises(NonFiniteOutput):
            present(RAW, missing)
    for unknown in (pandas.NA, pandas.Timedelta(1), pandas.Series([pandas.NA])):
        with pytest.raises(ModelFailed):
            present(RAW, unknown)


def test_a_row_of_a_sparse_matrix_is_a_row():
    sparse = pytest.importorskip("scipy.sparse")
    for matrix in (sparse.csr_matrix([[0, 1.5], [1, 0]]), sparse.csr_array([[0, 1.5], [1, 0]])):
        assert [as_json(row) for row in matrix] == ["[0.0,1.5]", "[1.0,0.0]"]


class Surprise:
    def toarray(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("raw", [Surprise(), [Surprise()], {"a": Surprise()}])
@pytest.mark.parametrize("spec", [RAW, CLASSES])
def test_a_type_that_raises_when_it_is_looked_at_is_the_models_failure(spec, raw):
    with pytest.raises(ModelFailed, match="cannot hold"):
        present(spec, raw)
