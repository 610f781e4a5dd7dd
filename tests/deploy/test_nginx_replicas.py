"""Several replicas behind nginx: no prediction is made twice, and a replica that goes takes little with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.load import load
from tests.deploy.proxy import GUARD_S, Proxy, address, needs_nginx, proxying, workers
from tests.system.conftest import Server, Start, free_port, starting

pytestmark = [pytest.mark.system, needs_nginx]

CLIENTS = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The replica that stays."""
    with starting(tmp_path_factory.mktemp("server")) as start_server:
        yield start_server()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts those that go."""
    with starting(tmp_path) as start_server:
        yield start_server


@contextmanager
def in_front_of(home: Path, *addresses: str) -> Iterator[Proxy]:
    with proxying(home, "replicas.conf", {"replicas.conf": addresses}) as running:
        yield running


@dataclass
class Quitter:
    """A server that reads a request and closes. `requests`: how many it has read."""

    address: str
    requests: int = 0


@contextmanager
def quitting() -> Iterator[Quitter]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        quitter = Quitter(f"127.0.0.1:{listener.getsockname()[1]}")

        def serve() -> None:
            with suppress(OSError):  # the listener is shut down
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(GUARD_S)
                        if connection.recv(65536):
                            quitter.requests += 1

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield quitter
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(GUARD_S)


def test_a_prediction_that_was_sent_is_never_sent_again(server: Server, tmp_path: Path):
    before = server.metric("inference_rows_total")
    with quitting() as quitter, in_front_of(tmp_path / "nginx", quitter.address, address(server.url)) as proxy:
        answers = [proxy.predict([0, 1.0]) for _ in range(4)]
        lost = [answer for answer in answers if answer.status_code != 200]
        assert [answer.status_code for answer in lost] == [502] * quitter.requests
        assert quitter.requests >= 1
        assert all(answer.json()["status"] == 502 for answer in lost)
        assert server.metric("inference_rows_total") - before == len(answers) - len(lost)


def test_a_question_that_changes_nothing_is_sent_on(server: Server, tmp_path: Path):
    with quitting() as quitter, in_front_of(tmp_path / "nginx", quitter.address, address(server.url)) as proxy:
        assert [proxy.get("/models").status_code for _ in range(4)] == [200] * 4
        assert quitter.requests >= 1


def test_a_replica_that_cannot_be_reached_costs_no_prediction(server: Server, tmp_path: Path):
    with in_front_of(tmp_path / "nginx", f"127.0.0.1:{free_port()}", address(server.url)) as proxy:
        assert [proxy.predict([0, 1.0]).status_code for _ in range(6)] == [200] * 6
        # The first one found out; the others were not held up.
        tried = [line["upstream"].count(",") for line in proxy.logged(6)]
        assert 1 <= sum(tried) <= 2


def test_a_replica_that_is_busy_answers_for_itself(start: Start, tmp_path: Path):
    """429 and 503 reach the client with the time to wait, and the replica stays in use."""
    broken = {"MODEL_PATH": "nowhere.onnx", "MODEL_FORMAT": "", "EXIT_ON_LOAD_ERROR": "false"}
    server, other = (start(app="service:create_app()", wait=False, **broken) for _ in range(2))
    for replica in (server, other):
        replica.wait_until(lambda replica=replica: replica.get("/livez").status_code == 200)
    with in_front_of(tmp_path / "nginx", address(server.url), address(other.url)) as proxy:
        assert [proxy.get("/healthz").status_code for _ in range(4)] == [503] * 4
        for _ in range(4):
            answer = proxy.predict([0, 1.0])
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert {line["upstream"] for line in proxy.logged(8)} == {address(server.url), address(other.url)}


def kill(server: Server) -> None:
    """End a server as the kernel would, its worker process first."""
    for pid in (*workers(server.process.pid), server.process.pid):
        os.kill(pid, signal.SIGKILL)
    server.process.wait(GUARD_S)


def test_a_replica_that_is_killed_takes_only_what_it_had_accepted(server: Server, start: Start, tmp_path: Path):
    killed = start()
    addresses = [address(killed.url), address(server.url)]
    with in_front_of(tmp_path / "nginx", *addresses) as proxy, load(proxy.port, CLIENTS) as answers:
        answers.wait_for_more()
        assert not answers.bad
        kill(killed)
        answers.wait_for_more()
    # Each client has one request at a time, so that no more can have been inside.
    assert len(answers.bad) <= CLIENTS
    lines = proxy.logged(len(answers.good) + len(answers.bad))
    assert not answers.closed
    lost = [line for line in lines if line["status"] != "200"]
    # The others had begun to be answered, and the proxy had passed the status on.
    refused = [(status, body) for status, body in answers.bad if status != 200]
    assert len(lost) == len(refused)
    assert {(line["status"], line["upstream"]) for line in lost} <= {("502", addresses[0])}
    assert all(status == 502 and json.loads(body)["status"] == 502 for status, body in refused)
    assert {line["upstream"] for line in lines[:100]} == set(addresses)


def test_a_replica_that_is_taken_out_first_takes_nothing(server: Server, start: Start, tmp_path: Path):
    stopped = start()
    before = server.metric("inference_rows_total") + stopped.metric("inference_rows_total")
    addresses = [address(stopped.url), address(server.url)]
    with in_front_of(tmp_path / "nginx", *addresses) as proxy, load(proxy.port, CLIENTS) as answers:
        answers.wait_for_more()
        take_out(proxy, addresses[0])
        rows = stopped.metric("inference_rows_total")
        assert stopped.stop() == 0
        answers.wait_for_more()
    assert not answers.bad
    # A client whose kept connection ended with the old processes of nginx asked again: no prediction was made twice.
    assert rows + server.metric("inference_rows_total") - before == len(answers.good)


def take_out(proxy: Proxy, replica: str) -> None:
    """As the file says: "down" behind it, and a reload."""
    file = proxy.home / "local/replicas.conf"
    text = file.read_text()
    assert f"{replica} " in text
    file.write_text(text.replace(f"{replica} ", f"{replica} down "))
    proxy.reload()
