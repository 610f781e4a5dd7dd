"""Answers that go out as they are, and those that need Werkzeug's help all the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask, Response
from werkzeug.test import EnvironBuilder, run_wsgi_app

from service.http.application import JitneyFlask
from service.http.json import json_response


def sent(response: Response, method: str = "GET") -> tuple[bytes, str, dict[str, str]]:
    parts, status, headers = run_wsgi_app(response, EnvironBuilder(method=method).get_environ())
    return b"".join(parts), status, dict(headers)


def test_a_plain_answer_is_sent_with_its_length() -> None:
    body, status, headers = sent(json_response({"a": 1}))
    assert (body, status) == (b'{"a":1}', "200 OK")
    assert headers == {"Content-Type": "application/json", "Content-Length": "7"}


def test_the_answer_to_a_head_request_has_no_body() -> None:
    body, _, headers = sent(json_response({"a": 1}), "HEAD")
    assert body == b""
    assert headers["Content-Length"] == "7"


def test_a_status_that_has_no_body_sends_none() -> None:
    response = json_response({"a": 1})
    response.status_code = 204
    body, _, headers = sent(response)
    assert body == b""
    assert "Content-Length" not in headers


def in_two(response: Response) -> None:
    response.response = [b"in ", b"two"]


def as_text(response: Response) -> None:
    response.response = ["in two"]


def as_stream(response: Response) -> None:
    response.response = iter([b"in ", b"two"])


@pytest.mark.parametrize("replace", [in_two, as_text, as_stream])
def test_a_body_that_was_replaced_is_sent(replace: Callable[[Response], None]) -> None:
    response = json_response({"a": 1})
    del response.headers["Content-Length"]
    replace(response)
    body, _, headers = sent(response)
    assert body == b"in two"
    assert headers.get("Content-Length") == (None if replace is as_stream else "6")


def test_what_is_to_happen_at_the_end_of_an_answer_happens() -> None:
    response, ends = json_response({}), []
    response.call_on_close(lambda: ends.append("closed"))
    parts, _, _ = run_wsgi_app(response, EnvironBuilder().get_environ())
    b"".join(parts)
    parts.close()  # type: ignore[attr-defined]
    assert ends == ["closed"]


def test_a_coroutine_is_seen_as_one_and_a_function_is_left_alone() -> None:
    app, awaited = JitneyFlask("jitney"), []

    async def coroutine() -> None: ...

    def run(func: Callable[..., Any]) -> Callable[..., Any]:
        awaited.append(func)
        return func

    app.async_to_sync = run  # type: ignore[method-assign]
    assert app.ensure_sync(len) is len
    assert app.ensure_sync(run) is run
    assert awaited == []
    app.ensure_sync(coroutine)
    assert awaited == [coroutine]


if hasattr(inspect, "markcoroutinefunction"):  # from Python 3.12 on

    def test_a_function_that_is_marked_as_a_coroutine_is_taken_for_one() -> None:
        app = JitneyFlask("jitney")
        app.async_to_sync = lambda func: len  # type: ignore[method-assign]
        assert app.ensure_sync(inspect.markcoroutinefunction(lambda: None)) is len


def test_paths_are_matched_as_werkzeug_does_below_a_prefix_too() -> None:
    ours, theirs = JitneyFlask("jitney"), Flask("flask")
    found = []
    for app in (ours, theirs):
        app.add_url_rule("/a/<name>", "view")
        context = app.test_request_context("/a/b?c=d", base_url="https://x.example:8443/prefix")
        adapter = context.url_adapter
        assert adapter is not None
        found.append((adapter.match(), adapter.build("view", {"name": "e"})))
    assert found[0] == found[1]
