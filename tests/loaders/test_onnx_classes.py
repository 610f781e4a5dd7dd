"""Classifiers exported by skl2onnx answer with labels and scores where the bundle asks for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_makers import export_sklearn, linear_onnx, value_onnx
from real_models import answers

from loaders import ModelHandle, ModelLoadError, load_model

DATA = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
CLASS = np.digitize(DATA[:, 0], [-0.4, 0.4])
NAMES: dict[str, list[Any]] = {"integers": [5, 7, -9], "texts": ["no", "maybe", "yés"]}

Load = Callable[..., ModelHandle]


def estimator(kind: str) -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "linear": lambda: LogisticRegression(),
        "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        "trees": lambda: RandomForestClassifier(5, random_state=0),
        "bayes": lambda: GaussianNB(),
        "neighbours": lambda: KNeighborsClassifier(),
        "one against all": lambda: OneVsRestClassifier(LogisticRegression()),
    }[kind]()


@pytest.fixture
def load(bundle: Callable[..., Path], tmp_path: Path) -> Load:
    """A fitted estimator as an ONNX model in a bundle with this `[output]`."""

    def make(fitted: Any, output: str, *, zipmap: bool) -> ModelHandle:
        path = export_sklearn(fitted, 4, tmp_path / "m.onnx", options={id(fitted): {"zipmap": zipmap}})
        return load_model(bundle(f'[model]\nfile = "m.onnx"\n{output}', path), device="cpu")

    return make


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("kind", ["linear", "pipeline", "trees", "bayes", "neighbours", "one against all"])
def test_label_and_score_are_those_of_the_estimator(load: Load, kind: str, names: str, zipmap: bool) -> None:
    model = estimator(kind).fit(DATA, np.array(NAMES[names])[CLASS])
    handle = load(model, '[output]\ntask = "classification"\ntop_k = 3\n', zipmap=zipmap)
    assert handle.output.labels == tuple(str(name) for name in model.classes_)
    for given, scores in zip(answers(handle, DATA[:9].tolist()), model.predict_proba(DATA[:9]), strict=True):
        expected = {str(name): score for name, score in zip(model.classes_, scores, strict=True)}
        assert {each["label"]: each["score"] for each in given} == pytest.approx(expected, abs=1e-5)
        assert [each["score"] for each in given] == sorted((each["score"] for each in given), reverse=True)


@pytest.mark.parametrize("zipmap", [True, False])
def test_without_top_k_the_best_is_given_under_the_declared_name(load: Load, zipmap: bool) -> None:
    model = estimator("linear").fit(DATA, CLASS)
    handle = load(model, '[output]\nlabels = ["low", "middle", "high"]\n', zipmap=zipmap)
    given = answers(handle, DATA[:5].tolist())
    assert [each["label"] for each in given] == [["low", "middle", "high"][best] for best in model.predict(DATA[:5])]
    assert [each["score"] for each in given] == pytest.approx(model.predict_proba(DATA[:5]).max(axis=1), abs=1e-5)


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("output", ['labels = ["a", "b"]', "top_k = 4"])
def test_what_does_not_fit_the_classes_is_refused_at_the_start(load: Load, zipmap: bool, output: str) -> None:
    model = estimator("linear").fit(DATA, CLASS)
    said = "the bundle says 2, but the model has 3 classes" if "labels" in output else "4 is more than the 3"
    with pytest.raises(ModelLoadError, match=said):
        load(model, f"[output]\n{output}\n", zipmap=zipmap)


@pytest.mark.parametrize("zipmap", [True, False])
def test_without_an_output_table_the_outputs_are_given_by_name(load: Load, zipmap: bool) -> None:
    model = estimator("linear").fit(DATA, CLASS)
    (given,) = answers(load(model, "", zipmap=zipmap), DATA[:1].tolist())
    assert set(given) == ({"output_label", "output_probability"} if zipmap else {"label", "probabilities"})


def test_classes_are_those_nearest_to_the_label(tmp_path: Path) -> None:
    """A stack holds classifiers of inner classes, which are not the ones that it answers with."""
    from sklearn.ensemble import StackingClassifier

    from loaders.formats.onnx import OnnxLoader

    model = StackingClassifier([("a", estimator("linear")), ("b", estimator("trees"))], cv=2)
    model.fit(DATA, np.array(["x", "y", "z"])[CLASS])
    path = export_sklearn(model, 4, tmp_path / "m.onnx", options={id(model): {"zipmap": False}})
    asked = {"output": {"task": "classification"}, "device": "cpu"}
    handle = OnnxLoader().load(path, name="m", version="1", metadata=asked)
    assert handle.metadata["classes"] == ["x", "y", "z"]


def test_classes_that_are_not_in_the_file_are_refused(bundle: Callable[..., Path], tmp_path: Path) -> None:
    nodes = [("ArgMax", ["x"], "label", {"axis": 1, "keepdims": 0}), ("Softmax", ["x"], "scores", {"axis": 1})]
    path = value_onnx(tmp_path / "m.onnx", nodes, outputs=["label", "scores"])
    import onnx

    model = onnx.load(path)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["n"]))
    model.graph.output[1].CopyFrom(onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["n", 4]))
    onnx.save(model, path)
    with pytest.raises(ModelLoadError, match="names of its classes cannot be found"):
        load_model(bundle('[model]\nfile = "m.onnx"\n[output]\ntask = "classification"\n', path), device="cpu")


@pytest.mark.parametrize("output", ['labels = ["a", "b"]', 'task = "classification"\ntop_k = 5'])
def test_labels_are_counted_against_the_shape_of_the_output(
    bundle: Callable[..., Path], tmp_path: Path, exported: Path, output: str
) -> None:
    for path in (linear_onnx(tmp_path / "m.onnx"), exported):
        with pytest.raises(ModelLoadError, match=r"\[output\] (labels: the bundle says 2, but the model has|top_k: 5)"):
            load_model(bundle(f'[model]\nfile = "{path.name}"\n[output]\n{output}\n', path), device="cpu")


def test_labels_for_the_single_number_of_a_regression_are_refused(
    bundle: Callable[..., Path], save_bert: Callable[..., Path]
) -> None:
    toml = '[model]\nfile = "one-number"\n[output]\nlabels = ["a", "b"]\n'
    with pytest.raises(ModelLoadError, match="the bundle says 2, but the model has 1"):
        load_model(bundle(toml, save_bert("one-number", num_labels=1)), device="cpu")
