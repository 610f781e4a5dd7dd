"""Estimators behind the routes: named columns, probabilities, and the shapes of answers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders import load_model

DATA = np.random.default_rng(3).normal(size=(40, 4))
YES_OR_NO = np.where(DATA[:, 0] > 0, "yes", "no")


@pytest.fixture
def serve(served, tmp_path: Path):
    def start(estimator: Any, **settings: Any):
        path = tmp_path / "model.pkl"
        path.write_bytes(pickle.dumps(estimator))
        return served(load_model(path, allow_pickle=True), **settings)

    return start


def test_text_labels_and_the_names_of_their_probabilities(serve):
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(DATA, YES_OR_NO)
    server = serve(model)
    rows = DATA[:5].tolist()
    assert server.predict(*rows).json["predictions"] == model.predict(DATA[:5]).tolist()
    answer = server.predict(*rows, parameters={"proba": True}).json
    assert answer["classes"] == ["no", "yes"]
    np.testing.assert_allclose(answer["predictions"], model.predict_proba(DATA[:5]))


@pytest.mark.parametrize("name", ["LinearSVC", "SVC", "LinearRegression"])
def test_probabilities_of_a_model_without_them_are_refused_and_harm_nobody(serve, name):
    from sklearn.linear_model import LinearRegression
    from sklearn.svm import SVC, LinearSVC

    kind = {"LinearSVC": LinearSVC, "SVC": SVC, "LinearRegression": LinearRegression}[name]
    model = kind().fit(DATA, YES_OR_NO if name != "LinearRegression" else DATA[:, 1])
    server = serve(model, max_batch_latency_ms=30)
    row = DATA[0].tolist()
    beside = [server.in_thread(lambda: server.predict(row)) for _ in range(3)]
    answer = server.predict(row, parameters={"proba": True})
    assert (answer.status_code, answer.json["errors"][0]["loc"]) == (422, "parameters")
    assert "it takes: none" in answer.json["errors"][0]["msg"]
    for wait in beside:
        given = wait()
        assert given.status_code == 200
        assert given.json["predictions"] == pytest.approx(model.predict(DATA[:1]).tolist())


def test_columns_by_name_in_any_order_and_faults_by_name(serve):
    import pandas
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.tree import DecisionTreeClassifier

    frame = pandas.DataFrame({"age": [20, 30, 40.5, 50] * 5, "city": ["Athens", "Bern"] * 10})
    columns = ColumnTransformer([("city", OneHotEncoder(), ["city"])], remainder="passthrough")
    target = np.where(frame["age"] > 35, frame["city"], "young")
    server = serve(make_pipeline(columns, DecisionTreeClassifier()).fit(frame, target))
    ordered, shuffled = {"age": 50, "city": "Bern"}, {"city": "Bern", "age": 50}
    assert server.predict(ordered, shuffled, [50, "Bern"], {"city": "Bern", "age": 20}).json["predictions"] == [
        "Bern", "Bern", "Bern", "young",
    ]  # fmt: skip
    for wrong, said in (({"age": 50}, "'city'"), ({**ordered, "height": 1}, "does not know"), ([50], "expected 2")):
        answer = server.predict(ordered, wrong)
        assert (answer.status_code, answer.json["errors"][0]["loc"]) == (422, "instances[1]")
        assert said in answer.json["errors"][0]["msg"]
    # A city that the encoder has never seen is this caller's fault alone.
    unseen = server.predict({"age": 50, "city": "Delft"})
    assert unseen.status_code == 500
    assert server.predict(ordered).status_code == 200


@pytest.mark.parametrize("columns", [0, 1, 2])
def test_the_shape_of_a_prediction_is_the_same_for_one_row_as_for_five(serve, columns):
    from sklearn.linear_model import LinearRegression

    server = serve(LinearRegression().fit(DATA, DATA[:, 0] if columns == 0 else DATA[:, :columns]))
    for count in (1, 5):
        predictions = server.predict(*DATA[:count].tolist()).json["predictions"]
        assert np.shape(predictions) == ((count,) if columns == 0 else (count, columns))


@pytest.mark.filterwarnings("ignore::UserWarning:skl2onnx")
@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"]])
def test_scores_by_label_of_an_exported_classifier(served, tmp_path, labels):
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(DATA, np.array(labels)[(DATA[:, 0] > 0).astype(int)])
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(model, DATA[:1].astype(np.float32), target_opset=18).SerializeToString())
    server = served(load_model(path, device="cpu"), max_batch_latency_ms=50)
    waiting = [server.in_thread(lambda row=row: server.predict(row)) for row in DATA[:4].tolist()]
    for wait, scores, label in zip(waiting, model.predict_proba(DATA[:4]), model.predict(DATA[:4]), strict=True):
        (prediction,) = wait().json["predictions"]
        assert prediction["output_label"] == label
        assert list(prediction["output_probability"]) == [str(name) for name in labels]
        assert list(prediction["output_probability"].values()) == pytest.approx(scores.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "kind, value, status",
    [("INT64", 1, 200), ("INT64", 1.0, 200), ("INT64", 1.5, 422), ("FLOAT", 1, 200), ("FLOAT", 1.5, 200),
     ("FLOAT", 1e39, 422), ("INT64", 2**53 + 1, 200), ("INT64", 2**63, 422), ("INT8", 128, 422)],
)  # fmt: skip
def test_numbers_meet_the_type_that_an_onnx_model_declares(served, tmp_path, kind, value, status):
    from onnx import TensorProto, helper

    dtype = getattr(TensorProto, kind)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "same",
        [helper.make_tensor_value_info("x", dtype, ["n", 1])],
        [helper.make_tensor_value_info("y", dtype, ["n", 1])],
    )
    path = tmp_path / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    answer = served(load_model(path, device="cpu")).predict([value])
    assert answer.status_code == status
    if status == 200:
        assert answer.json["predictions"] == [[value]]
