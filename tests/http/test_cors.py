"""What a browser lets pages of other origins do."""

from __future__ import annotations

import pytest

HERE, ELSEWHERE = "https://app.example.org", "https://evil.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


def cors_headers(answer) -> set[str]:
    return {name for name, _ in answer.headers if name.startswith("Access-Control-")}


def test_no_origin_is_allowed_unless_one_is_named(served):
    client = served().client
    for answer in (
        client.post("/predict", json={"instances": [[1]]}, headers={"Origin": HERE}),
        client.options("/predict", headers={"Origin": HERE, **PREFLIGHT}),
    ):
        assert answer.status_code == 200
        assert not cors_headers(answer)
        assert "Origin" not in answer.headers.get("Vary", "")


@pytest.mark.parametrize("origins, allowed", [(HERE, HERE), (f"https://b.example,{HERE}", HERE), ("*", "*")])
def test_a_preflight_of_an_allowed_origin_is_answered_with_no_content(served, origins, allowed):
    answer = served(cors_origins=origins, api_keys="first-key").client.options(
        "/predict", headers={"Origin": HERE, **PREFLIGHT}
    )
    assert (answer.status_code, answer.data) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == allowed
    assert answer.headers["Access-Control-Allow-Methods"] == "OPTIONS, POST"
    assert {"Authorization", "Content-Type", "X-API-Key"} <= set(
        answer.headers["Access-Control-Allow-Headers"].split(", ")
    )
    assert int(answer.headers["Access-Control-Max-Age"]) > 0
    assert ("Origin" in answer.headers.get("Vary", "")) == (allowed != "*")
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize(
    "origin", [ELSEWHERE, HERE + ".evil.example", HERE + "/", HERE.upper(), "null", "", HERE + ":443"]
)
def test_another_origin_is_told_nothing(served, origin):
    client = served(cors_origins=HERE).client
    preflight = client.options("/predict", headers={"Origin": origin, **PREFLIGHT})
    answer = client.post("/predict", json={"instances": [[1]]}, headers={"Origin": origin})
    for one in (preflight, answer):
        assert not cors_headers(one)
        assert "Origin" in one.headers["Vary"]


@pytest.mark.parametrize(
    "method, path, status",
    [("POST", "/predict", 200), ("POST", "/nope", 404), ("GET", "/predict", 405), ("GET", "/healthz", 200),
     ("POST", "/models/x/predict", 404), ("GET", "/metrics", 200)],
)  # fmt: skip
def test_answers_and_errors_may_be_read_by_pages_of_an_allowed_origin(served, method, path, status):
    body = {"json": {"instances": [[1]]}} if method == "POST" else {}
    answer = served(cors_origins=HERE).client.open(path, method=method, headers={"Origin": HERE}, **body)
    assert answer.status_code == status
    assert answer.headers["Access-Control-Allow-Origin"] == HERE
    exposed = set(answer.headers["Access-Control-Expose-Headers"].split(", "))
    assert {"X-Request-ID", "X-Model-Version", "Server-Timing", "Retry-After"} <= exposed


def test_a_missing_key_may_be_read_too(served):
    answer = served(cors_origins=HERE, api_keys="first-key").client.post("/predict", headers={"Origin": HERE})
    assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (401, HERE)


def test_a_request_without_an_origin_differs_for_caches_only(served):
    answer = served(cors_origins=HERE).predict([1])
    assert not cors_headers(answer)
    assert "Origin" in answer.headers["Vary"]


def test_a_preflight_of_a_path_that_is_not_there_is_not_found(served):
    answer = served(cors_origins=HERE).client.options("/nope", headers={"Origin": HERE, **PREFLIGHT})
    assert answer.status_code == 404
