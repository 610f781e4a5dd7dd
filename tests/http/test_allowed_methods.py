"""What `Allow` tells of a path, as the answer to OPTIONS and to a wrong method: the methods that are answered there."""

from __future__ import annotations

import pytest

READ, WRITTEN = {"GET", "HEAD", "OPTIONS"}, {"POST", "OPTIONS"}
ALLOWED = {
    "/predict": WRITTEN,
    "/models/m/predict": WRITTEN,
    "/models/m/versions/3/predict": WRITTEN,
    "/v1/models/m:predict": WRITTEN,
    "/v1/models/m/versions/3:predict": WRITTEN,
    "/v2/models/m/infer": WRITTEN,
    "/v2/models/m/versions/3/infer": WRITTEN,
    "/v2/repository/index": WRITTEN,
    "/v2/repository/models/m/load": WRITTEN,
    "/v2/repository/models/m/unload": WRITTEN,
    "/models": READ,
    "/models/m": READ,
    "/v1/models/m": READ,
    "/v1/models/m/versions/3": READ,
    "/v2": READ,
    "/v2/health/live": READ,
    "/v2/health/ready": READ,
    "/v2/models/stats": READ,
    "/v2/models/m": READ,
    "/v2/models/m/ready": READ,
    "/v2/models/m/config": READ,
    "/v2/models/m/stats": READ,
    "/v2/models/m/versions/3": READ,
    "/v2/models/m/versions/3/ready": READ,
    "/v2/models/m/versions/3/config": READ,
    "/v2/models/m/versions/3/stats": READ,
    "/healthz": READ,
    "/livez": READ,
    "/metrics": READ,
    "/": READ,
    "/status.json": READ,
    "/status/status.js": READ,
    "/openapi.json": READ,
    "/docs": READ,
    "/docs/docs.js": READ,
}


def told(answer) -> set[str]:
    return set(answer.headers["Allow"].split(", "))


@pytest.mark.parametrize("path", ALLOWED)
def test_options_and_a_wrong_method_tell_the_methods_of_the_path_and_no_others(served, path):
    client = served(start=False).client
    assert told(client.options(path)) == ALLOWED[path]
    refused = client.patch(path)
    assert (refused.status_code, told(refused)) == (405, ALLOWED[path])


def test_every_rule_is_in_the_table(served):
    adapter = served(start=False).app.url_map.bind("")
    matched = {
        adapter.match(path, method=min(methods - {"OPTIONS"}), return_rule=True)[0].rule
        for path, methods in ALLOWED.items()
    }
    assets = {rule for rule in map(str, adapter.map.iter_rules()) if rule.startswith(("/docs/", "/status/"))}
    assert {str(rule) for rule in adapter.map.iter_rules()} - assets == matched - assets
