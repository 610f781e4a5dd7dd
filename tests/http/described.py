"""Answers held against the service's own description of them."""

from __future__ import annotations

from openapi_schema_validator import OAS31Validator


def described(server):
    answer = server.client.get("/openapi.json")
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    return answer.json


def resolve(api, node):
    if "$ref" not in node:
        return node
    _, components, section, name = node["$ref"].split("/")
    return api[components][section][name]


def check(api, answer, method, path):
    """The answer is one that the document tells of: its status, type, body and headers."""
    responses = api["paths"][path][method]["responses"]
    assert str(answer.status_code) in responses, answer.text
    response = resolve(api, responses[str(answer.status_code)])
    for name, header in response["headers"].items():
        assert name in answer.headers or not resolve(api, header).get("required"), name
    if "content" not in response:
        assert answer.data == b""
        return
    media = response["content"][answer.mimetype]
    if answer.is_json:
        OAS31Validator({**media["schema"], "components": api["components"]}).validate(answer.json)
