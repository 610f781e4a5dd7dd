"""`make bench-peers`, as short as it can be, with the peers that need nothing but this environment."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmark.peers import load
from benchmark.peers.environments import own_environment
from benchmark.peers.measuring import Turn, right_answers, rows_of
from benchmark.peers.peer import Launch, Peer
from benchmark.peers.registry import PEERS
from benchmark.peers.rows import read
from benchmark.peers.running import ServerFailed, free_ports, running
from benchmark.peers.workloads import WORKLOADS

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("unmeasured")]

ROOT = Path(__file__).parents[2]
GUARD_S = 300
NEED_NOTHING = ("raw", "jitney", "flask_naive", "flask_batcher")

# A server that leaves a child behind, whose id it writes down before it answers.
LEAVES_A_CHILD = """
import subprocess, sys, http.server
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleep, start_new_session=sys.argv[2] == "apart")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        open("child", "w").write(str(child.pid))
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peers")


@pytest.fixture(scope="module")
def turn(folder: Path) -> Turn:
    workload = WORKLOADS["tabular"]
    inputs = workload.inputs()
    return Turn(workload, inputs, right_answers(workload, inputs, folder), (2,), 1.0, 1, folder)


def launch_in(scratch: Path) -> Launch:
    return Launch(own_environment(), WORKLOADS["tabular"], free_ports(), scratch, scratch)


def scripted(code: str, *words: str) -> Peer:
    """A peer whose server is `code`, with its port and `words`."""
    return dataclasses.replace(
        PEERS["flask_naive"], command=lambda launch: [sys.executable, "-c", code, str(launch.port), *words]
    )


def wait_gone(pid: int) -> None:
    """Who has lost its parent is taken up by another, which may be slow to take note of its end, or never does it."""
    give_up_at = time.monotonic() + 10
    while time.monotonic() < give_up_at:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("it goes on running")


def test_a_comparison_writes_table_chart_and_figures_and_adds_to_them(folder, tmp_path):
    command = [sys.executable, "-m", "benchmark.peers.compare", "--workloads", "tabular", "--concurrency", "1", "4"]
    where = ["--plots", str(tmp_path / "plots"), "--write", str(tmp_path / "peers.md"), "--folder", str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    def compare(*words: str) -> None:
        words = ("--seconds", "1", "--rounds", "1", *words)
        done = subprocess.run(
            [*command, *where, *words], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=GUARD_S
        )
        assert done.returncode == 0, done.stderr

    compare("--peers", *NEED_NOTHING)
    rows = read(tmp_path / "plots" / "peers_results.csv")
    assert [(row.peer, row.callers) for row in rows] == [(name, n) for name in sorted(NEED_NOTHING) for n in (1, 4)]
    for row in rows:
        assert row.fault == ""
        assert row.errors == 0
        assert row.requests_per_s > 10
        assert 0 < row.p50_ms <= row.p99_ms
        assert row.cpu_ms_per_request > 0
    assert (tmp_path / "plots" / "peers_tabular.svg").read_text().startswith("<?xml")
    text = (tmp_path / "peers.md").read_text()
    assert all(PEERS[name].title in text for name in NEED_NOTHING)

    compare("--peers", "raw", "--merge", "--first-round", "2")
    added = read(tmp_path / "plots" / "peers_results.csv")
    assert [row for row in added if row.round == 1] == rows
    assert [(row.peer, row.callers) for row in added if row.round == 2] == [("raw", 1), ("raw", 4)]


def test_who_answers_otherwise_than_the_raw_model_is_not_timed(turn):
    wrong = dataclasses.replace(turn, right=[[number + 0.1 for number in numbers] for numbers in turn.right])
    (row,) = rows_of(PEERS["flask_naive"], wrong)
    assert row.fault.startswith("64 of 64 answers are wrong: a number is off by 0.1")
    assert row.callers == 0


def test_without_wrk_the_load_comes_from_our_own_client_and_the_row_says_so(turn, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    (row,) = rows_of(PEERS["flask_naive"], turn)
    assert (row.load, row.fault, row.errors) == (load.CLIENT, "", 0)
    assert row.requests_per_s > 10


def test_a_server_that_does_not_start_is_missing_with_its_own_last_words(turn):
    (row,) = rows_of(scripted("print('no luck'); raise SystemExit(3)"), turn)
    assert row.fault == "the server has ended: no luck"


def test_what_a_server_has_started_ends_with_it_wherever_it_went(tmp_path):
    with running(scripted(LEAVES_A_CHILD, "apart"), launch_in(tmp_path)) as server:
        child = int((tmp_path / "child").read_text())
        assert any(pid == child for pid, _ in server.cpu_times().processes)
    wait_gone(child)


def test_a_server_that_has_ended_is_told_and_leaves_nobody(tmp_path):
    with running(scripted(LEAVES_A_CHILD, "together"), launch_in(tmp_path)) as server:
        child = int((tmp_path / "child").read_text())
        server.process.kill()
        server.process.wait()
        with pytest.raises(ServerFailed, match="has ended"):
            server.cpu_times()
    wait_gone(child)
