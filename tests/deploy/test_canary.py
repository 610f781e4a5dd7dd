"""Two versions behind nginx, and how clients move from one to the other."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.deploy.proxy import GUARD_S, Proxy, address, needs_nginx, proxying
from tests.system.conftest import Server, free_port, starting

pytestmark = [pytest.mark.system, needs_nginx]

JSON = {"Content-Type": "application/json"}
BODY = b'{"instances": [[0, 1]]}'
CLIENTS = [f"client-{number}" for number in range(300)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Version 1, and version 2."""
    with starting(tmp_path_factory.mktemp("servers")) as start:
        both = [start(MODEL_VERSION=version, MAX_BATCH_LATENCY_MS=0, wait=False) for version in ("1", "2")]
        for server in both:
            server.wait_ready()
        yield both


@pytest.fixture(scope="module")
def proxy(servers: list[Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    stable, canary = (address(server.url) for server in servers)
    with proxying(tmp_path_factory.mktemp("nginx"), "canary.conf", places(stable, canary)) as running:
        yield running


def places(stable: str, canary: str) -> dict[str, list[str]]:
    return {"stable-servers.conf": [stable], "canary-servers.conf": [stable, canary]}


def set_weight(proxy: Proxy, share: str) -> None:
    """As the file says: a new number, and a reload."""
    weights = proxy.home / "local/canary-weights.conf"
    text, count = re.subn(r"[\d.]+%", share, weights.read_text().partition("split_clients")[2])
    assert count == 1
    weights.write_text("split_clients" + text)
    proxy.reload()


def versions(proxy: Proxy) -> dict[str, str]:
    """The version that each client gets, all on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, GUARD_S)
    found = {}
    for client in CLIENTS:
        connection.request("POST", "/predict", BODY, {"X-Client-ID": client} | JSON)
        answer = connection.getresponse()
        assert (answer.status, b'"predictions":[1.0]' in answer.read()) == (200, True)
        found[client] = answer.headers["X-Model-Version"]
        assert answer.headers["X-Serving"] == {"1": "stable", "2": "canary"}[found[client]]
    connection.close()
    return found


def test_clients_move_from_version_1_to_2_in_the_shares_that_are_asked_for(proxy: Proxy, servers: list[Server]):
    before = servers[1].metric("inference_rows_total")
    moved: set[str] = set()
    rows = 0
    for share, expected in (("10%", 0.10), ("50%", 0.50), ("100%", 1.0)):
        set_weight(proxy, share)
        found = versions(proxy)
        on_two = {client for client, version in found.items() if version == "2"}
        assert len(on_two) / len(CLIENTS) == pytest.approx(
            expected, abs=0.04
        )  # the same each time: no drawing is random
        assert moved <= on_two  # nobody who had the new version goes back
        moved = on_two
        rows += len(on_two)
    assert servers[1].metric("inference_rows_total") - before == rows
    assert versions(proxy) == found


def ask(proxy: Proxy, body: object = None, **headers: str) -> requests.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.post(f"{proxy.url}/predict", json=body or {"instances": [[0, 1]]}, headers=sent, timeout=GUARD_S)


def test_a_client_without_an_id_is_known_by_its_address(proxy: Proxy):
    set_weight(proxy, "50%")
    found = {}
    for last in range(2, 34):
        source = f"127.0.0.{last}"
        got = set()
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.port, GUARD_S, source_address=(source, 0))
            connection.request("POST", "/predict", BODY, JSON)
            got.add(connection.getresponse().headers["X-Model-Version"])
            connection.close()
        assert len(got) == 1
        found[source] = got.pop()
    assert set(found.values()) == {"1", "2"}


@pytest.mark.parametrize("share", ["0.01%", "100%"])
def test_a_request_may_choose_its_version(proxy: Proxy, share: str):
    set_weight(proxy, share)
    assert ask(proxy, X_Serving="canary").headers["X-Model-Version"] == "2"
    assert ask(proxy, X_Serving="stable").headers["X-Model-Version"] == "1"
    drawn = "1" if share == "0.01%" else "2"
    assert ask(proxy, X_Serving="other").headers["X-Model-Version"] == drawn


def test_a_body_that_asks_for_the_other_version_is_refused(proxy: Proxy):
    for serving, own, other in (("stable", "1", "2"), ("canary", "2", "1")):
        right = ask(proxy, {"instances": [[0, 1]], "model_version": own}, X_Serving=serving)
        assert (right.status_code, right.json()["model_version"]) == (200, own)
        wrong = ask(proxy, {"instances": [[0, 1]], "model_version": other}, X_Serving=serving)
        assert (wrong.status_code, wrong.headers["X-Model-Version"]) == (409, own)
        assert wrong.headers["Content-Type"] == "application/problem+json"


def test_a_canary_that_cannot_be_reached_costs_nobody_an_answer(servers: list[Server], tmp_path: Path):
    gone = f"127.0.0.1:{free_port()}"
    with proxying(tmp_path, "canary.conf", places(address(servers[0].url), gone)) as proxy:
        for _ in range(3):
            answer = ask(proxy, X_Serving="canary")
            assert (answer.status_code, answer.headers["X-Model-Version"]) == (200, "1")


def test_what_is_closed_is_closed_for_both(proxy: Proxy):
    for serving in ("stable", "canary"):
        assert proxy.get("/%6detrics", headers={"X-Serving": serving}).status_code == 404
