from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from flask import Flask

from service import errors
from service.errors import Fault, InvalidInput, JitneyError
from service.http.problems import MAX_BYTES, PROBLEMS, from_error

ABSTRACT = {errors.PredictionFailed}


def descendants(kind: type[JitneyError]) -> Iterator[type[JitneyError]]:
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


@pytest.fixture(autouse=True)
def request_context():
    with Flask("problems").test_request_context():
        yield


def test_every_error_has_its_place_in_the_table():
    defined = {kind for kind in descendants(JitneyError) if kind.__module__ == "service.errors"}
    assert defined - PROBLEMS.keys() == ABSTRACT
    assert PROBLEMS.keys() <= defined


def test_titles_are_told_apart():
    titles = [title for _, title in PROBLEMS.values()]
    assert len(set(titles)) == len(titles)


def test_an_error_that_is_not_in_the_table_is_answered_like_the_nearest_above_it():
    class OwnRefusal(errors.Draining):
        pass

    class OwnFailure(errors.PredictionFailed):
        pass

    class Strange(JitneyError):
        pass

    assert from_error(OwnRefusal("x")).status_code == 503
    assert "Retry-After" in from_error(OwnRefusal("x")).headers
    assert from_error(OwnFailure("x", [2])).status_code == 500
    assert from_error(OwnFailure("x", [2])).json["errors"] == [{"loc": "instances[2]", "msg": "x"}]
    assert from_error(Strange("x")).status_code == 500


@pytest.mark.parametrize("letter", ["x", "é", "…", "😀", '"', "\u0001"], ids=ascii)
def test_an_answer_stays_short_whatever_the_texts_hold(letter):
    answer = from_error(InvalidInput(*[Fault(letter * 300, letter * 300)] * 50))
    assert len(answer.data) < MAX_BYTES
    assert 1 <= len(answer.json["errors"]) <= 20


@pytest.mark.parametrize("wait_s, header", [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.01, "2"), (59.5, "60")])
def test_the_wait_is_rounded_up_to_whole_seconds(wait_s, header):
    assert from_error(errors.QueueFull(1, 2, 3, wait_s)).headers["Retry-After"] == header


def test_a_problem_is_a_document_of_its_own_type():
    answer = from_error(InvalidInput.at("instances[1]", "must be a number"))
    assert answer.content_type == "application/problem+json"
    body = orjson.loads(answer.data)
    assert body.pop("request_id")
    assert body == {
        "type": "about:blank",
        "title": "Invalid input",
        "status": 422,
        "detail": "instances[1]: must be a number",
        "errors": [{"loc": "instances[1]", "msg": "must be a number"}],
    }


@pytest.mark.parametrize(
    "error, name, value",
    [
        (errors.Unauthorized("x"), "WWW-Authenticate", "Bearer"),
        (errors.UnsupportedEncoding(("gzip", "identity")), "Accept-Encoding", "gzip, identity"),
        (errors.NotReady("x"), "Retry-After", "2"),
        (errors.QueueFull(1, 2, 3, 7.5), "Retry-After", "8"),
    ],
)
def test_a_client_is_told_what_to_do_about_its_error(error, name, value):
    assert from_error(error).headers[name] == value
