"""Worker processes replaced under load: nobody is refused, and nobody is cut off half way."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from benchmark.endurance.client import Client, End

pytestmark = pytest.mark.system

ECHO, SLEEP = 0, 3
CLIENTS = 32


@contextmanager
def under_load(server, think_s: float = 0.02) -> Iterator[Callable[[], Counter]]:
    """32 clients with kept connections; gives what became of their requests so far."""
    host, port = server.url.removeprefix("http://").split(":")
    over = threading.Event()
    ends: list[str] = []

    def call(number: int) -> None:
        client = Client(host, int(port), guard_s=60.0)
        for turn in range(1_000_000):
            if over.wait(think_s * (number % 4)):
                break
            value = number * 1_000_000 + turn
            reply = client.predict({"instances": [[SLEEP, 10], [ECHO, value]]})
            if reply.status == 200:
                ends.append("200" if reply.json()["predictions"] == [10, value] else "wrong")
            elif reply.end is End.CLOSED and reply.reused:
                ends.append("closed, may be sent again")
            else:
                ends.append(str(reply.status or reply.end))
        client.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        calls = [pool.submit(call, number) for number in range(CLIENTS)]
        try:
            yield lambda: Counter(ends)
        finally:
            over.set()
            for one in calls:
                one.result()


def boots(server) -> int:
    return server.text().count("Booting worker")


def exits(server) -> int:
    return server.text().count("Worker exiting")


@pytest.mark.parametrize(("workers", "threads"), [(1, 72), (1, 8), (2, 72)])
def test_a_reload_under_load_refuses_nobody_however_long_the_model_loads(start, workers, threads):
    server = start(LOAD_S=2, WEB_WORKERS=workers, THREADS=threads, MAX_BATCH_SIZE=4)
    server.wait_until(lambda: server.text().count("is ready") == workers)
    with under_load(server) as ends:
        for turn in (1, 2):
            server.wait_until(lambda: ends()["200"] > 100)
            server.process.send_signal(signal.SIGHUP)
            server.wait_until(lambda turn=turn: exits(server) == turn * workers)
            before = ends()["200"]
            server.wait_until(lambda before=before: ends()["200"] > before + 100)
    assert ends().keys() <= {"200", "closed, may be sent again"}
    assert ends()["closed, may be sent again"] <= CLIENTS // 4
    assert server.predict([ECHO, 1]).json()["predictions"] == [1]


def test_while_the_new_process_loads_the_old_one_is_ready_and_live(start):
    server = start(LOAD_S=3)
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: boots(server) == 2)
    statuses = set()
    while exits(server) == 0:
        statuses |= {server.get("/healthz").status_code, server.get("/livez").status_code}
        time.sleep(0.02)
    assert statuses == {200}


def test_a_reload_makes_the_service_unready_for_nobody_on_a_kept_connection_either(start):
    server = start()
    statuses: Counter = Counter()
    with requests.Session() as session:
        server.process.send_signal(signal.SIGHUP)
        while exits(server) == 0:
            statuses[session.get(server.url + "/healthz", timeout=10).status_code] += 1
            time.sleep(0.01)
    assert statuses.keys() == {200}


@pytest.mark.parametrize("ends_process", ["true", "false"])
@pytest.mark.parametrize("spoil", [Path.unlink, lambda model: model.write_text("die")], ids=["gone", "dies"])
def test_a_reload_with_a_model_that_cannot_be_loaded_keeps_the_old_one(start, tmp_path, spoil, ends_process):
    server = start(EXIT_ON_LOAD_ERROR=ends_process)
    spoil(tmp_path / "model.bin")
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: "those before it go on to serve" in server.text())
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: server.text().count("those before it go on to serve") == 2)
    assert server.process.poll() is None
    assert server.predict([ECHO, 3]).json()["predictions"] == [3]
    (tmp_path / "model.bin").write_text("whole")
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: exits(server) >= 1)
    assert server.predict([ECHO, 4]).json()["predictions"] == [4]


def test_a_reload_of_code_that_cannot_be_imported_keeps_the_old_process(start, tmp_path):
    (tmp_path / "own.py").write_text("from scripted import app")
    server = start(app="own:app")
    (tmp_path / "own.py").write_text("from scripted import no_such_name")
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: "1 others go on to serve, and none is lacking" in server.text())
    assert server.predict([ECHO, 3]).json()["predictions"] == [3]
    (tmp_path / "own.py").write_text("from scripted import app  # mended")
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: server.text().count("is ready") == 2)
    assert server.predict([ECHO, 4]).json()["predictions"] == [4]
    assert server.stop() == 0


def kill_one(server) -> None:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    os.kill(int(children.split()[0]), signal.SIGKILL)


def ask_for_one_more(server) -> None:
    server.process.send_signal(signal.SIGTTIN)


@pytest.mark.parametrize("lose", [kill_one, ask_for_one_more])
def test_a_process_that_cannot_load_its_model_does_not_end_those_that_serve(start, tmp_path, lose):
    server = start(WEB_WORKERS=2)
    server.wait_until(lambda: server.text().count("is ready") == 2)
    (tmp_path / "model.bin").write_text("die")
    lose(server)
    server.wait_until(lambda: "others go on to serve, and the next try is in 10 s" in server.text())
    assert [server.predict([ECHO, value]).json()["predictions"] for value in range(8)] == [
        [value] for value in range(8)
    ]
    (tmp_path / "model.bin").write_text("whole")
    server.wait_until(lambda: server.text().count("is ready") == 3)
    assert server.stop() == 0


def test_a_process_that_ends_while_it_loads_hears_the_masters_repeated_signals(start):
    server = start(LOAD_S=3)
    for turn in (2, 3):
        server.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda turn=turn: boots(server) == turn)
    server.wait_until(lambda: server.text().count("is ready") == 2 and exits(server) == 2)
    assert server.stop() == 0
    assert "Exception" not in server.text()


def test_a_reload_minds_how_many_files_may_be_open(start):
    server = start()
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (400, 400))
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: "144 connections at a time" in server.text(), guard_s=10)


def test_a_stop_in_the_middle_of_a_reload_ends_old_and_new(start):
    server = start(LOAD_S=3)
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: boots(server) == 2)
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 15


def test_a_process_that_is_made_in_the_moment_of_the_stop_hears_of_it_too(start):
    server = start()
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: "Hang up" in server.text(), guard_s=10)
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 15


def test_workers_that_retire_after_many_requests_lose_none_though_the_model_loads_slowly(start):
    server = start("--max-requests", "150", "--max-requests-jitter", "150", LOAD_S=1, WEB_WORKERS=2)
    server.wait_until(lambda: server.text().count("is ready") == 2)
    with under_load(server) as ends:
        server.wait_until(lambda: boots(server) >= 5)
    # Where both retire at the same time nobody serves as long as the model loads, and that is said.
    assert ends().keys() <= {"200", "503", "closed, may be sent again"}
    assert ends()["200"] > 300
