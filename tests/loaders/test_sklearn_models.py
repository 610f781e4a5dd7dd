"""Estimators from pickle and joblib files."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_makers import Digits

from loaders import MissingDependencyError, ModelHandle, ModelLoadError, OutputSpec, TabularInput, TextInput, load_model


def served(tmp_path: Path, estimator: Any, **options: Any) -> ModelHandle:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(estimator))
    return load_model(path, allow_pickle=True, **options)


class Answers:
    """An estimator that answers with what it was given, whatever is asked."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def predict(self, rows: Any) -> Any:
        return self.result


class Frame:
    """Stands for a data frame: turns into an array on request."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def to_numpy(self) -> np.ndarray:
        return self.array


class Column:
    """As small a data frame as pandas makes: it keeps its columns' names."""

    def __init__(self, data: np.ndarray, columns: list[str]) -> None:
        self.data, self.columns = data, columns

    def infer_objects(self) -> Column:
        return self


class NamedColumns:
    """Answers with the column it knows as "b"; trained on named columns."""

    feature_names_in_ = np.array(["a", "b"], dtype=object)
    n_features_in_ = 2

    def predict(self, rows: Any) -> Any:
        return rows.data[:, rows.columns.index("b")] if isinstance(rows, Column) else rows[:, 1]


class SelectsColumns(NamedColumns):
    """As `NamedColumns`, with transformers for single columns."""

    transformers = ()


def test_the_width_comes_from_the_estimator(digits_joblib: Path) -> None:
    handle = load_model(digits_joblib, allow_pickle=True)
    assert handle.input == TabularInput(width=64)
    assert handle.metadata["classes"] == list(range(10))


def test_probabilities_come_in_the_order_of_the_classes(digits_joblib: Path, digits: Digits) -> None:
    handle = load_model(digits_joblib, allow_pickle=True)
    assert handle.parameters == {"proba"}
    rows = list(digits.data[500:504])
    results = handle.predict_batch(rows, {"proba": True})
    np.testing.assert_allclose(results, digits.estimator.predict_proba(digits.data[500:504]))
    assert handle.predict_batch(rows, {"proba": False}) == list(digits.estimator.predict(digits.data[500:504]))


def test_a_model_without_probabilities_says_so_when_it_is_loaded(tmp_path: Path, digits: Digits) -> None:
    from sklearn.svm import LinearSVC

    handle = served(tmp_path, LinearSVC().fit(digits.data[:100] / 16, np.arange(100) % 3))
    assert handle.parameters == frozenset()
    assert len(handle.predict_batch(list(digits.data[:2]))) == 2


def test_several_outputs_give_one_list_of_probabilities_each(tmp_path: Path, digits: Digits) -> None:
    from sklearn.ensemble import RandomForestClassifier

    targets = np.array([["no", "x"], ["yes", "y"], ["no", "z"]] * 20)
    forest = RandomForestClassifier(n_estimators=3, random_state=0).fit(digits.data[:60], targets)
    handle = served(tmp_path, forest)
    assert handle.metadata["classes"] == [["no", "yes"], ["x", "y", "z"]]
    results = handle.predict_batch(list(digits.data[:4]), {"proba": True})
    first, second = forest.predict_proba(digits.data[:4])
    for number, (of_first, of_second) in enumerate(results):
        np.testing.assert_allclose(of_first, first[number])
        np.testing.assert_allclose(of_second, second[number])


def test_text_labels_come_back_as_they_were_trained(tmp_path: Path, digits: Digits) -> None:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier().fit(digits.data[:4], ["no", "yes", "no", "yes"])
    assert served(tmp_path, tree).predict_batch(list(digits.data[:2])) == ["no", "yes"]


def test_a_text_pipeline_gets_the_texts_themselves(bundle: Callable[..., Path], tmp_path: Path) -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    texts = ["good film", "bad film"]
    served(tmp_path, make_pipeline(CountVectorizer(), MultinomialNB()).fit(texts, ["pos", "neg"]))
    directory = bundle('[model]\nfile = "model.pkl"\n[input]\nkind = "text"\n', tmp_path / "model.pkl")
    handle = load_model(directory, allow_pickle=True)
    assert handle.input == TextInput()
    assert handle.predict_batch(["bad", "good"]) == ["neg", "pos"]


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        (np.array(3.0), [3.0]),
        (np.array([[1.0]]), [[1.0]]),
        ([1], [1]),
        ((1,), [1]),
        ([{1: 0.5, "b": 0.5}], [{"1": 0.5, "b": 0.5}]),
        (Frame(np.array([7])), [7]),
    ],
)
def test_whatever_an_estimator_returns_becomes_one_result_per_row(tmp_path: Path, result: Any, rows: Any) -> None:
    given = served(tmp_path, Answers(result)).predict_batch([np.zeros(2)])
    assert [value.tolist() if isinstance(value, np.ndarray) else value for value in given] == rows


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_result_becomes_flat_rows(tmp_path: Path) -> None:
    given = served(tmp_path, Answers(np.matrix([[1, 2], [3, 4]]))).predict_batch([np.zeros(2)] * 2)
    assert [row.tolist() for row in given] == [[1, 2], [3, 4]]


def test_a_sparse_result_becomes_rows(tmp_path: Path) -> None:
    from scipy.sparse import csr_matrix

    given = served(tmp_path, Answers(csr_matrix([[0, 1], [1, 0]]))).predict_batch([np.zeros(2)] * 2)
    assert [row.tolist() for row in given] == [[0, 1], [1, 0]]


@pytest.mark.parametrize("result", [None, 3.0, np.array(3.0)])
def test_an_answer_without_rows_is_handed_on_for_the_count_to_find(tmp_path: Path, result: Any) -> None:
    given: Any = served(tmp_path, Answers(result)).predict_batch([np.zeros(2)] * 2)
    assert not isinstance(given, list)


def test_named_columns_reach_a_model_that_was_trained_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = types.ModuleType("pandas")
    pandas.DataFrame = Column
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    handle = served(tmp_path, NamedColumns())
    assert handle.input == TabularInput(columns=("a", "b"), width=2)
    assert handle.predict_batch([np.array([1.0, 2.0]), np.array([3.0, 4.0])]) == [2.0, 4.0]
    assert served(tmp_path, SelectsColumns()).input == TabularInput(columns=("a", "b"), width=2, dtype="object")
    pipeline = Answers(None)
    pipeline.feature_names_in_ = ["a"]
    pipeline.steps = [("pick", SelectsColumns())]
    assert served(tmp_path, pipeline).input == TabularInput(columns=("a",), dtype="object")


def test_a_real_data_frame_pipeline_gives_the_same_for_rows_as_for_its_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = pandas.DataFrame({"age": [20, 30, 40.5, 50], "city": ["x", "y", "x", "y"]})
    columns = ColumnTransformer([("city", OneHotEncoder(), ["city"])], remainder="passthrough")
    model = make_pipeline(columns, LinearRegression()).fit(frame, [1, 2, 3, 5])
    handle = served(tmp_path, model)
    assert handle.input == TabularInput(columns=("age", "city"), width=2, dtype="object")
    rows = [np.array([30, "y"], dtype=object), np.array([40.5, "x"], dtype=object)]
    np.testing.assert_allclose(handle.predict_batch(rows), model.predict(frame.iloc[1:3]))


def test_without_pandas_named_columns_become_plain_arrays_without_a_flood_of_warnings(
    tmp_path: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(digits.data[:40, 20:22], np.arange(40) % 2)
    model.feature_names_in_ = np.array(["a", "b"], dtype=object)
    with monkeypatch.context() as without_pandas:
        without_pandas.setitem(sys.modules, "pandas", None)
        handle = served(tmp_path, model)
    assert "pandas" in handle.warnings[0]
    with warnings.catch_warnings(record=True) as seen:
        handle.predict_batch(list(digits.data[:3, 20:22]))
    assert seen == []


def test_column_names_that_are_not_text_are_not_used(tmp_path: Path) -> None:
    estimator = Answers([1])
    estimator.feature_names_in_ = [1, 2]
    assert served(tmp_path, estimator).input == TabularInput()


def test_a_declared_classification_gives_scores_to_rank(
    bundle: Callable[..., Path], digits_pickle: Path, digits: Digits
) -> None:
    directory = bundle('[model]\nfile = "digits.pkl"\n[output]\ntask = "classification"\ntop_k = 3\n', digits_pickle)
    handle = load_model(directory, allow_pickle=True)
    assert handle.output == OutputSpec(task="classification", labels=tuple("0123456789"), top_k=3)
    np.testing.assert_allclose(
        handle.predict_batch([digits.data[500]]), digits.estimator.predict_proba(digits.data[500:501])
    )


@pytest.mark.parametrize("key", ["top_k = 3", 'labels = ["a"]'])
def test_a_declared_ranking_needs_probabilities(bundle: Callable[..., Path], tmp_path: Path, key: str) -> None:
    served(tmp_path, Answers([1]))
    directory = bundle(f'[model]\nfile = "model.pkl"\n[output]\n{key}\n', tmp_path / "model.pkl")
    with pytest.raises(ModelLoadError, match=r"\[output\] (top_k|labels): needs a score"):
        load_model(directory, allow_pickle=True)


def test_labels_alone_ask_for_a_classification(
    bundle: Callable[..., Path], digits_pickle: Path, digits: Digits
) -> None:
    names = [f"digit {number}" for number in range(10)]
    directory = bundle(f'[model]\nfile = "digits.pkl"\n[output]\nlabels = {names}\n', digits_pickle)
    handle = load_model(directory, allow_pickle=True)
    assert handle.output == OutputSpec(task="classification", labels=tuple(names))
    assert np.shape(handle.predict_batch([digits.data[500]])) == (1, 10)


def test_several_outputs_have_no_common_labels(bundle: Callable[..., Path], tmp_path: Path) -> None:
    estimator = Probable([np.array([[0.5, 0.5]])])
    estimator.classes_ = [np.array(["a", "b"])]
    served(tmp_path, estimator)
    directory = bundle('[model]\nfile = "model.pkl"\n[output]\ntask = "classification"\n', tmp_path / "model.pkl")
    assert load_model(directory, allow_pickle=True).output == OutputSpec(task="classification")


class Probable(Answers):
    """As `Answers`, with probabilities."""

    def predict_proba(self, rows: Any) -> Any:
        return self.result


@pytest.mark.parametrize(("device", "notes"), [("cuda", 1), ("cuda:2", 1), ("cpu", 0), ("auto", 0)])
def test_a_wish_for_a_gpu_is_answered_with_a_note(digits_pickle: Path, device: str, notes: int) -> None:
    handle = load_model(digits_pickle, allow_pickle=True, device=device)
    assert handle.device == "cpu"
    assert len(handle.warnings) == notes


def test_a_class_from_the_training_script_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.pkl"
    main = sys.modules["__main__"]
    local = type("Doubler", (Answers,), {"__module__": "__main__"})
    monkeypatch.setattr(main, "Doubler", local, raising=False)
    path.write_bytes(pickle.dumps(local(1)))
    monkeypatch.delattr(main, "Doubler")
    with pytest.raises(ModelLoadError, match=r"module __main__ has no 'Doubler'.*move it to a module"):
        load_model(path, allow_pickle=True)


def test_a_model_saved_by_a_script_with_a_class_of_its_own_names_that_class(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import pickle\n"
        "from sklearn.base import BaseEstimator, TransformerMixin\n"
        "from sklearn.linear_model import LinearRegression\n"
        "from sklearn.pipeline import make_pipeline\n"
        "class Halver(TransformerMixin, BaseEstimator):\n"
        "    def fit(self, X, y=None): return self\n"
        "    def transform(self, X): return X\n"
        "model = make_pipeline(Halver(), LinearRegression()).fit([[0.0], [1.0]], [0, 1])\n"
        "pickle.dump(model, open('model.pkl', 'wb'))\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", str(script)], cwd=tmp_path, check=True)
    with pytest.raises(ModelLoadError, match=r"'model.pkl': module __main__ has no 'Halver'.*can be imported"):
        load_model(tmp_path / "model.pkl", allow_pickle=True)


def test_a_class_that_was_removed_from_its_module_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(b"cloaders\nNothingOfTheKind\n.")
    with pytest.raises(ModelLoadError, match="module loaders has no 'NothingOfTheKind'"):
        load_model(path, allow_pickle=True)


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(b"cnot_installed_here.models\nModel\n.")
    with pytest.raises(ModelLoadError, match="'not_installed_here'"):
        load_model(path, allow_pickle=True)


@pytest.mark.parametrize(("fmt", "module"), [("pickle", "sklearn.linear_model"), ("joblib", "joblib")])
def test_a_missing_framework_is_answered_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str, module: str
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"csklearn.linear_model\nLinearRegression\n.")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=r"jitney\[sklearn\]"):
        load_model(path, fmt, allow_pickle=True)


def test_data_stored_in_another_way_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Raises("node array from the pickle has an incompatible dtype:\n- expected: ...")))
    with pytest.raises(ModelLoadError, match=r"incompatible dtype.*save the model again"):
        load_model(path, allow_pickle=True)


class Raises:
    """Raises a ValueError when it is unpickled."""

    def __init__(self, message: str) -> None:
        self.message = message

    def __reduce__(self) -> Any:
        return (_raise, (self.message,))


def _raise(message: str) -> None:
    raise ValueError(message)


def test_another_version_of_scikit_learn_is_noted_once(tmp_path: Path, digits: Digits) -> None:
    path = tmp_path / "model.pkl"
    import sklearn

    saved = pickle.dumps(digits.estimator)
    version = sklearn.__version__.encode()
    assert version in saved
    path.write_bytes(saved.replace(version, b"0" * (len(version) - 2) + b".1"))
    handle = load_model(path, allow_pickle=True)
    (note,) = handle.warnings
    assert ".1" in note
    assert sklearn.__version__ in note


def test_other_warnings_at_loading_are_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(WarnsAtLoading(Answers([1]))))
    with pytest.warns(UserWarning, match="look at this"):
        load_model(path, allow_pickle=True)


class WarnsAtLoading:
    """Warns when it is unpickled, and becomes what it holds."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __reduce__(self) -> Any:
        return (_warn, (self.inner,))


def _warn(inner: Any) -> Any:
    warnings.warn("look at this", UserWarning, stacklevel=1)
    return inner


def test_values_of_several_types_keep_their_types_without_pandas_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    given = served(tmp_path, Types()).predict_batch([(20, "Bern", True), (1.5, "Cork", None)])
    assert given == [[int, str, bool], [float, str, type(None)]]


class Types:
    """Answers with the types of the values it was given."""

    def predict(self, rows: Any) -> Any:
        return [[type(value) for value in row] for row in rows]
