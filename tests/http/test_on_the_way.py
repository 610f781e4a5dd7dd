"""A request is counted as on its way from the server to the queue, by one of both at any moment."""

from __future__ import annotations

import pytest
from served import GUARD_S

from service.wsgi_environ import ANNOUNCED


@pytest.mark.parametrize("body", [{"instances": [[1, 2]]}, {"instances": "not rows"}])
def test_the_server_is_told_once_the_batcher_counts_the_request_and_not_before(served, body):
    server = served(batch_policy="eager")
    seen = []

    def announced() -> None:
        seen.append(server.runtime.batcher()._admission.on_the_way)

    server.client.post("/predict", json=body, environ_overrides={ANNOUNCED: announced})
    assert seen == [1]
    assert server.runtime.batcher()._admission.on_the_way == 0


def test_a_request_that_is_refused_unread_is_left_to_the_server(served):
    told = []
    answer = served(batch_policy="eager").client.post(
        "/models/nobody/predict", json={}, environ_overrides={ANNOUNCED: lambda: told.append(1)}
    )
    assert (answer.status_code, told) == (404, [])


def test_what_the_server_knows_reaches_the_policy(served):
    asked = []

    def on_the_way() -> int:
        asked.append(1)
        return 0

    server = served(batch_policy="eager", start=False)
    server.runtime.on_the_way = on_the_way
    server.runtime.start()
    assert server.runtime.batcher().wait_started(GUARD_S)
    assert server.predict([1]).status_code == 200
    assert asked
