"""The rules that tests give their apps are those of Flask, but for the time at which they learn to build URLs."""

from __future__ import annotations

import pytest
from flask import Flask, url_for
from support.rules import BuiltWhenAsked
from werkzeug.routing import BuildError, Rule

PATHS = ("/", "/models/<name>", "/models/<name>/versions/<int:rule>", "/files/<path:file>")


@pytest.fixture(params=[Rule, BuiltWhenAsked])
def app(request: pytest.FixtureRequest) -> Flask:
    app = Flask("of_rules")
    app.url_rule_class = request.param
    for path in PATHS:
        app.add_url_rule(path, endpoint=path, view_func=lambda **values: values)
    return app


def test_every_test_has_them():
    assert Flask("of_rules").url_rule_class is BuiltWhenAsked


def test_urls_are_built_from_them(app):
    with app.test_request_context():
        assert url_for("/") == "/"
        assert url_for("/", page="2 3") == "/?page=2+3"
        assert url_for("/models/<name>", name="a b") == "/models/a%20b"
        assert url_for("/models/<name>/versions/<int:rule>", name="m", rule=7) == "/models/m/versions/7"
        assert url_for("/files/<path:file>", file="a/b") == "/files/a/b"
        for wanting in ({"name": "m"}, {"name": "m", "rule": "seven"}):
            with pytest.raises((BuildError, ValueError)):
                url_for("/models/<name>/versions/<int:rule>", **wanting)


def test_paths_are_matched_by_them(app):
    client = app.test_client()
    assert client.get("/models/m/versions/7").json == {"name": "m", "rule": 7}
    assert client.get("/models/m/versions/seven").status_code == 404
    assert client.get("/files/a/b").json == {"file": "a/b"}
