"""Every route, in every state of the service, gives an answer that `/openapi.json` tells of."""

from __future__ import annotations

import pytest
from described import check, described
from served import GUARD_S, Gate, Served, sums

from loaders.handle import ModelHandle
from loaders.signature import TabularInput
from service.http.openapi.document import OPERATIONS
from service.wsgi_environ import AHEAD

TOKEN = "operator-token"


def body_of(path: str) -> dict:
    if path.endswith("/infer"):
        return {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 1], "data": [1]}]}
    return {} if "repository" in path else {"instances": [[1]]}


def check_all(server: Served, **environ: object) -> dict[str, int]:
    """Ask every route, those that change something last; gives the statuses by the id of the operation."""
    api = described(server)
    statuses = {}
    for operation in sorted(OPERATIONS, key=lambda one: one.operation_id in ("v2_load", "v2_unload")):
        answer = server.client.open(
            operation.path.replace("{name}", "m").replace("{version}", "3"),
            method=operation.method.upper(),
            json=body_of(operation.path) if operation.method == "post" else None,
            headers={"X-API-Key": TOKEN},
            environ_overrides=environ,
        )
        check(api, answer, operation.method, operation.path)
        statuses[operation.operation_id] = answer.status_code
    return statuses


def test_while_all_is_well(served):
    statuses = check_all(served(admin_token=TOKEN))
    assert set(statuses.values()) == {200}


def test_while_loading_and_unloading_are_switched_off(served):
    statuses = check_all(served())
    assert {name for name, status in statuses.items() if status == 403} == {"v2_load", "v2_unload"}


def test_while_the_model_loads(served):
    gate = Gate()
    model = ModelHandle.from_callable(gate, name="m", version="3", input=TabularInput(width=1))
    server = served(model, warmup=True, ready=False)
    assert gate.started.wait(GUARD_S)
    try:
        statuses = check_all(server)
    finally:
        gate.release.set()
    assert statuses["predict"] == statuses["v2_metadata"] == statuses["v1_status"] == 503


def test_while_the_service_stops(served):
    server = served(admin_token=TOKEN)
    server.runtime.begin_drain()
    assert check_all(server)["v1_predict"] == 503


def test_when_the_worker_has_died(served):
    def dies(rows):
        raise SystemExit

    server = served(dies, admin_token=TOKEN)
    assert server.predict([1]).status_code == 503
    statuses = check_all(server)
    assert statuses["predict"] == statuses["healthz_head"] == statuses["v2_unload"] == 503


def test_when_the_only_model_is_unloaded(served):
    server = served(admin_token=TOKEN)
    assert server.runtime.unload("m")
    statuses = check_all(server)
    assert statuses["predict"] == statuses["v1_predict"] == statuses["v2_infer"] == 404


def test_without_a_key(served):
    server = served(api_keys="the-right-key", metrics_key="the-other-key", admin_token="the-last-key")
    statuses = check_all(server)
    assert {status for name, status in statuses.items() if name in ("predict", "metrics", "v2_load")} == {401}


@pytest.mark.parametrize("model", [sums, None])
def test_while_too_many_wait_for_a_thread(served, model):
    server = served(model, ready=model is not None, exit_on_load_error=False)
    statuses = check_all(server, **{AHEAD: 5000})
    probes = {"healthz", "healthz_head", "livez", "livez_head", "metrics", "v2_live", "v2_ready"}
    assert {name for name, status in statuses.items() if status == 429} >= (
        set(statuses) - probes - {"v2_load", "v2_unload"} if model is not None else {"v2_index", "docs", "models"}
    )
    assert not any(statuses[name] == 429 for name in probes)
