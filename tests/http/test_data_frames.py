"""Estimators trained on data frames: the server answers what the estimator says when it is asked itself."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from loaders import load_model

pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

ROWS: list[dict[str, Any]] = [
    {"age": 3.0, "zip": 1, "city": "a", "member": True},
    {"age": 4.5, "zip": 2, "city": "b", "member": False},
    {"age": 50.0, "zip": 10, "city": "c", "member": True},
    {"age": 61.0, "zip": 1, "city": "c", "member": False},
    {"age": 7.0, "zip": 10, "city": "a", "member": True},
    {"age": 30.0, "zip": 2, "city": "b", "member": True},
]
FRAME = pandas.DataFrame(ROWS)
ANSWERS = ["no", "yes", "yes", "no", "no", "yes"]


def pipeline(encoded: list[str], frame: Any = FRAME, inner: Any = None) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    inner = inner or OneHotEncoder(handle_unknown="ignore")
    columns = ColumnTransformer([("c", inner, encoded)], remainder="passthrough")
    return make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(frame, ANSWERS)


@pytest.fixture
def serve(served, tmp_path):
    def make(estimator: Any, **options: Any) -> Any:
        path = tmp_path / "model.pkl"
        path.write_bytes(pickle.dumps(estimator))
        return served(load_model(path, allow_pickle=True), **options)

    return make


def probabilities(server: Any, *rows: Any) -> Any:
    answer = server.predict(*rows, parameters={"proba": True})
    assert answer.status_code == 200, answer.text
    return answer.json["predictions"]


@pytest.mark.parametrize("columns", [["zip", "city"], ["city"], ["zip", "city", "member"], ["city", "member"]])
@pytest.mark.parametrize("names", [["age", "zip", "city"], ["age", "zip", "city", "member"], ["member", "city"]])
def test_a_row_is_answered_as_by_the_estimator_alone_and_in_company(serve, columns, names):
    columns = [name for name in columns if name in names]
    model = pipeline(columns, FRAME[names])
    server = serve(model)
    expected = model.predict_proba(FRAME[names])
    rows = [{name: row[name] for name in names} for row in ROWS]
    for row, own in zip(rows, expected, strict=True):
        np.testing.assert_allclose(probabilities(server, row), [own])
    np.testing.assert_allclose(probabilities(server, *rows), expected)
    assert server.predict(*rows).json["predictions"] == model.predict(FRAME[names]).tolist()


def test_neighbours_with_values_of_other_types_do_not_change_an_answer(serve):
    from sklearn.preprocessing import FunctionTransformer

    # What this makes of a value depends on the types of value and column, of which nothing is known.
    model = pipeline(["zip"], FRAME[["zip", "age"]], FunctionTransformer(_lengths))
    server = serve(model)
    rows = [{"zip": 1, "age": 3.0}, {"zip": "1", "age": 3.0}, {"zip": True, "age": 4}, {"zip": "abc", "age": 5.5}]
    alone = [probabilities(server, row)[0] for row in rows]
    np.testing.assert_allclose(probabilities(server, *rows, *rows), alone + alone)
    for row, answer in zip(rows, alone, strict=True):
        np.testing.assert_allclose(answer, model.predict_proba(pandas.DataFrame([row]))[0])


def _lengths(frame: Any) -> Any:
    of_values = frame.map(lambda value: len(repr(value).strip("'")) + 10 * isinstance(value, str)).to_numpy(float)
    return of_values + np.array([dtype.kind == "O" for dtype in frame.dtypes])


@pytest.mark.parametrize(
    "wrong, place, word",
    [
        ({"age": "3.0"}, "instances[1].age", "must be a number or a boolean, not a string"),
        ({"zip": "1"}, "instances[1].zip", "must be a number, not a string"),
        ({"zip": True}, "instances[1].zip", "must be a number, not a boolean"),
        ({"city": 5}, "instances[1].city", "must be a string, not a number"),
        ({"member": 1}, "instances[1].member", "must be true or false, not a number"),
        (
            {"member": None},
            "instances[1].member",
            "must be true or false, not null; a missing value has to be allowed in the model's bundle "
            "([input] allow_null = true)",
        ),
    ],
)
def test_a_value_of_another_type_than_its_column_is_refused(serve, wrong, place, word):
    server = serve(pipeline(["zip", "city", "member"]))
    answer = server.predict(ROWS[0], ROWS[0] | wrong)
    assert (answer.status_code, answer.json["errors"]) == (422, [{"loc": place, "msg": word}])


def test_types_are_known_through_searches_unions_and_nested_pipelines(serve):
    from sklearn.impute import SimpleImputer
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    inner = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    frame = FRAME[["age", "city"]]
    model = GridSearchCV(pipeline(["city"], frame, inner), {"logisticregression__C": [1.0]}, cv=2).fit(frame, ANSWERS)
    server = serve(model)
    np.testing.assert_allclose(probabilities(server, *frame.to_dict("records")), model.predict_proba(frame))
    assert server.predict({"age": "3", "city": "a"}).status_code == 422
    assert server.predict({"age": 3, "city": 3}).status_code == 422


def test_a_forest_behind_the_columns_takes_no_numbers_in_strings(serve):
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = FRAME[["age", "city", "member"]]
    columns = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    model = make_pipeline(columns, RandomForestClassifier(3, random_state=0)).fit(frame, ANSWERS)
    server = serve(model)
    np.testing.assert_allclose(probabilities(server, *frame.to_dict("records")), model.predict_proba(frame))
    for wrong in ({"age": "3"}, {"member": "1"}, {"city": True}):
        assert server.predict({"age": 3, "city": "a", "member": True} | wrong).status_code == 422


def test_an_encoder_of_text_without_a_choice_of_columns_takes_text(serve):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = FRAME[["city", "zip"]]
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(frame, ANSWERS)
    server = serve(model)
    np.testing.assert_allclose(probabilities(server, *frame.to_dict("records")), model.predict_proba(frame))


def test_a_null_is_a_missing_value_alone_as_in_company(served, tmp_path):
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = FRAME[["age", "city"]].copy()
    frame.loc[1, "age"] = None
    frame.loc[2, "city"] = None
    model = make_pipeline(
        ColumnTransformer(
            [("age", SimpleImputer(), ["age"]), ("city", OneHotEncoder(handle_unknown="ignore"), ["city"])]
        ),
        LogisticRegression(),
    ).fit(frame, ANSWERS)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    (tmp_path / "jitney.toml").write_text(
        '[model]\nname = "m"\nfile = "model.pkl"\n[input]\nkind = "tabular"\nallow_null = true\n'
    )
    server = served(load_model(tmp_path, allow_pickle=True))
    rows = [{"age": 3, "city": "a"}, {"age": None, "city": "b"}, {"age": 50, "city": None}]
    expected = model.predict_proba(pandas.DataFrame({"age": [3, np.nan, 50], "city": ["a", "b", None]}))
    np.testing.assert_allclose([probabilities(server, row)[0] for row in rows], expected)
    np.testing.assert_allclose(probabilities(server, *rows), expected)


def test_a_null_where_the_estimator_fails_on_one_is_refused_by_column(served, tmp_path):
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
        (StandardScaler(), ["zip"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
        (OneHotEncoder(), ["member"]),
    )
    model = make_pipeline(columns, LogisticRegression()).fit(FRAME, ANSWERS)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    (tmp_path / "jitney.toml").write_text("[input]\nallow_null = true\n")
    server = served(load_model(tmp_path, allow_pickle=True))
    assert server.predict(ROWS[0] | {"age": None, "city": None}).status_code == 200
    answer = server.predict(ROWS[0], dict.fromkeys(FRAME.columns), [3.0, None, "a", True])
    assert answer.status_code == 422
    said = "not null: the model takes no missing value in this column"
    assert answer.json["errors"] == [
        {"loc": "instances[1].zip", "msg": f"must be a number or a boolean, {said}"},
        {"loc": "instances[1].member", "msg": f"must be true or false, {said}"},
        {"loc": "instances[2][1]", "msg": f"must be a number or a boolean, {said}"},
    ]
    row = server.client.get("/openapi.json").json["components"]["schemas"]["Instance"]["anyOf"][0]["properties"]
    assert ["null" in row[name]["type"] for name in ("age", "zip", "city", "member")] == [True, False, True, False]


@pytest.mark.parametrize("wrapped", [False, True])
def test_boosting_over_columns_of_categories_is_answered_as_by_the_estimator(serve, wrapped):
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import GridSearchCV

    frame = pandas.DataFrame(
        {
            "age": np.arange(60.0) % 7,
            "city": pandas.Categorical(["Graz", "Bern", "Ulm"] * 20),
            "size": pandas.Categorical([1, 2] * 30),
        }
    )
    model: Any = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2)
    if wrapped:
        model = GridSearchCV(model, {"max_iter": [5]}, cv=2)
    model.fit(frame, (frame["city"] == "Graz") ^ (frame["size"] == 2))
    server = serve(model)
    rows = [{"age": age, "city": city, "size": int(size)} for age, city, size in frame.iloc[:9].itertuples(index=False)]
    expected = model.predict_proba(frame.iloc[:9])
    for row, own in zip(rows, expected, strict=True):
        np.testing.assert_allclose(probabilities(server, row), [own])
    np.testing.assert_allclose(probabilities(server, *rows), expected)
    assert len({tuple(own) for own in expected.tolist()}) > 2
    for wrong in ({"city": 3}, {"size": "1"}, {"age": "3"}):
        assert server.predict(rows[0] | wrong).status_code == 422
