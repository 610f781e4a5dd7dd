"""A service that is mounted under a prefix (SCRIPT_NAME)."""

from __future__ import annotations

import requests


def test_under_a_prefix_paths_match_exactly_and_nothing_else_is_there(start):
    server = start(SCRIPT_NAME="/ml", wait=False)
    server.wait_until(lambda: server.get("/ml/healthz").status_code == 200)
    assert server.post({"instances": [[0, 5]]}, "/ml/predict").json()["predictions"] == [5]
    for path in ("/mlpredict", "/predict"):
        answer = server.post({"instances": [[0, 5]]}, path)
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
    for path in ("/mllivez", "/livez", "/", "/mlmetrics"):
        assert server.get(path).status_code == 404
    assert server.get("/ml/livez").status_code == 200


def test_a_client_cannot_say_where_the_service_is_mounted(start):
    server = start()
    answer = requests.get(server.url + "/x/openapi.json", headers={"SCRIPT_NAME": "/x"}, timeout=10)
    assert answer.status_code == 404
    assert requests.get(server.url + "/livez", headers={"SCRIPT_NAME": "/x"}, timeout=10).status_code == 200
