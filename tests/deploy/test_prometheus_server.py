"""A real Prometheus at two real servers: targets, rules, the dashboard's queries, and what replicas are scaled by."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy import scaling
from tests.deploy.dashboard import queries
from tests.deploy.prometheus import ALERTS, GUARD_S, Prometheus, program, recorded, rules, scraping
from tests.system.conftest import Server, starting

pytestmark = pytest.mark.system

PODS = ("serving-stable-1", "serving-stable-2")
ROW_S, BATCH = 0.003, 8
CALLERS, ROWS = 10, 100
THREADS, CLIENTS = 72, 640
ALL_NUMBERS = [one.name for one in scaling.all_of(*PODS)]


@dataclass
class Deployment:
    """Two replicas, under the labels that the Prometheus operator would give them, and who scrapes them.

    Their models do nothing while there is a file `gate`.
    """

    replicas: list[Server]
    prometheus: Prometheus
    gate: Path

    def predict(self) -> None:
        """Ask each replica for texts of several lengths, and for one on which the model fails."""
        texts = ["one", "one two three", "one two three four five"]
        for replica in self.replicas:
            assert replica.predict(*texts).json()["predictions"] == [1, 3, 5]
            assert replica.predict(*texts, "fail").status_code == 500


@pytest.fixture(scope="module")
def deployment(tmp_path_factory) -> Iterator[Deployment]:
    program("prometheus")
    directory = tmp_path_factory.mktemp("deployment")
    gate = directory / "gate"
    with starting(directory) as start:
        replicas = [
            start(
                app="wordy:app",
                wait=False,
                PYTHONPATH=Path(__file__).parent,
                MODEL_PATH="",
                MODEL_FORMAT="",
                ROW_S=ROW_S,
                MAX_BATCH_SIZE=BATCH,
                THREADS=THREADS,
                GATE=gate,
            )
            for _ in PODS
        ]
        targets = [
            (replica.url.removeprefix("http://"), {"job": "serving-stable", "namespace": "jitney", "pod": pod})
            for replica, pod in zip(replicas, PODS, strict=True)
        ]
        with scraping(directory, *targets) as prometheus:
            running = Deployment(replicas, prometheus, gate)
            for replica in replicas:
                replica.wait_ready()
            running.predict()
            # A count that is there at the first look has not grown: only what is seen to grow has a rate.
            failed = 'http_request_duration_seconds_count{status="500"}'
            prometheus.wait_until(lambda: len(prometheus.samples(failed)) == len(PODS))
            running.predict()
            yield running


def names_in(expression: str) -> set[str]:
    """The metrics and recorded rules that it is made of."""
    return set(re.findall(r"\b(?:up\b|http_\w+|inference_\w+|(?:route|job|model|instance):\w+:\w+)", expression))


def test_every_replica_is_scraped_without_an_error(deployment):
    targets = deployment.prometheus.ask("targets")["activeTargets"]
    assert [(target["health"], target["lastError"]) for target in targets] == [("up", "")] * len(PODS)


def test_every_recording_rule_gives_values(deployment):
    prometheus = deployment.prometheus
    prometheus.wait_until(lambda: recorded() <= set(prometheus.ask("label/__name__/values")))
    # Each of them, and now: also those of which another rule has long had values.
    prometheus.wait_until(lambda: all(prometheus.samples(name) for name in recorded()))
    faults = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"] if rule["health"] == "err"]
    assert not faults


def test_the_rules_say_what_has_happened(deployment):
    prometheus, version = deployment.prometheus, '{model="wordy"}'

    def value(name: str) -> float:
        return prometheus.value(name) or 0.0

    prometheus.wait_until(lambda: 0 < value(f"model:inference_padding_tokens:ratio5m{version}") < 1)
    prometheus.wait_until(lambda: 1 < value(f"model:inference_batch_size:mean5m{version}") <= BATCH)
    # Half of the predictions fail.
    prometheus.wait_until(lambda: 0 < value("job:http_errors:ratio5m") < 1)


def test_alerts_ask_for_what_there_is(deployment):
    prometheus = deployment.prometheus
    asked = set().union(*(names_in(rule["expr"]) for rule in rules(ALERTS)))
    prometheus.wait_until(lambda: asked <= set(prometheus.ask("label/__name__/values")))


@pytest.mark.parametrize(
    "expression", [query for _, query in queries()], ids=[f"{title}-{n}" for n, (title, _) in enumerate(queries())]
)
def test_every_query_of_the_dashboard_finds_something(deployment, expression):
    deployment.prometheus.wait_until(lambda: bool(deployment.prometheus.samples(expression)))


@contextmanager
def many_single_rows(server: Server, count: int) -> Iterator[list[bytes]]:
    """So many clients that each wait for one row; what they were answered is in the list after the block."""
    body = b'{"instances": ["one two"]}'
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    host, _, port = server.url.removeprefix("http://").partition(":")
    answers: list[bytes] = []
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection((host, int(port)), GUARD_S)) for _ in range(count)]
        for client in clients:
            client.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        yield answers
        answers += [client.recv(12) for client in clients]


def scrapes_since(deployment: Deployment, since: float) -> list[float]:
    """When the loaded replica's queue was looked at, Unix times."""
    query = f'inference_queue_depth{{pod="{PODS[0]}"}}[1m]'
    (series,) = deployment.prometheus.ask("query", query=query)["result"]
    return [float(at) for at, _ in series["values"] if float(at) > since]


def over(deployment: Deployment, at: float | None = None) -> list[str]:
    """The numbers of the autoscalers that ask for more replicas."""
    expressions = scaling.all_of(*PODS)
    assert len(expressions) == 4
    return [one.name for one in expressions if one.per_pod(deployment.prometheus, len(PODS), at) > one.target]


def over_at_the_second_scrape(deployment: Deployment, since: float) -> list[str]:
    deployment.prometheus.wait_until(lambda: len(scrapes_since(deployment, since)) >= 2)
    return over(deployment, scrapes_since(deployment, since)[1])


def test_a_full_queue_asks_for_more_replicas_within_two_scrapes_and_for_none_when_it_is_empty(deployment):
    loaded, prometheus = deployment.replicas[0], deployment.prometheus
    assert over(deployment) == []
    texts = ["one two"] * ROWS
    with ThreadPoolExecutor(CALLERS) as pool:
        deployment.gate.touch()
        try:
            calls = [pool.submit(loaded.predict, *texts) for _ in range(CALLERS)]
            # All but the batch that is at the gate.
            loaded.wait_until(lambda: loaded.metric("inference_queue_depth") >= CALLERS * ROWS - BATCH)
            assert over_at_the_second_scrape(deployment, time.time()) == ALL_NUMBERS
        finally:
            deployment.gate.unlink()
        assert [call.result().status_code for call in calls] == [200] * CALLERS
    prometheus.wait_until(lambda: over(deployment) == [])


def test_clients_without_a_thread_ask_for_more_replicas_too(deployment):
    """Each with a single row, so that there are never more rows in the queue than the service has threads."""
    loaded, prometheus = deployment.replicas[0], deployment.prometheus
    prometheus.wait_until(lambda: over(deployment) == [])
    deployment.gate.touch()
    with many_single_rows(loaded, CLIENTS) as answers:
        try:
            loaded.wait_until(lambda: loaded.metric("http_requests_waiting") >= CLIENTS - THREADS)
            assert loaded.metric("inference_queue_depth") < THREADS
            assert over_at_the_second_scrape(deployment, time.time()) == ALL_NUMBERS
        finally:
            deployment.gate.unlink()
    assert answers == [b"HTTP/1.1 200"] * CLIENTS
    prometheus.wait_until(lambda: over(deployment) == [])
