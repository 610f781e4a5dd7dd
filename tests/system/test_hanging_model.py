"""A model that hangs: what becomes of its process, and of those who wait."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

import pytest

from tests.system.crowd import SLOW_MACHINE, Client, fill, request, row, start_gated

pytestmark = [
    pytest.mark.system,
    # Sockets that the server cuts at the very end of a test may complain when they are collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_model_that_hangs_ends_its_process_when_that_is_wanted(start, gate):
    server = start_gated(start, gate, STALL_LIMIT_MS=500, EXIT_ON_STALL="true")
    gate.touch()
    with ExitStack() as stack:
        inside = fill(server, stack)
        began = time.monotonic()
        assert {client.answer()[0] for client in inside} == {503}
        assert time.monotonic() - began < 2 * SLOW_MACHINE
        server.wait_until(lambda: server.text().count("Booting worker") == 2 and server.get("/healthz").ok)
        gate.unlink()
        assert server.predict([6]).json()["predictions"] == [6.0]
    assert "EXIT_ON_STALL" in server.text()


def test_a_model_that_hangs_keeps_its_process_when_that_is_not_wanted(start, gate):
    server = start_gated(start, gate, STALL_LIMIT_MS=200)
    gate.touch()
    with Client(server) as client:
        client.send(request(row(3)))
        server.wait_until(lambda: server.get("/livez").status_code == 503)
        time.sleep(0.6)
        gate.unlink()
        assert client.answer()[0] == 200
    assert server.text().count("Booting worker") == 1
    os.kill(server.process.pid, 0)
