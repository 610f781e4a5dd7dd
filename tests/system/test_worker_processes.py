"""Several worker processes: they count together, whichever of them answers, and whatever becomes of one."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from loaders.devices import cpu_count

pytestmark = pytest.mark.system

ECHO, SLEEP = 0, 3
READS = 20

# How old the state of another process may be, and what a busy machine adds to that, seconds.
STATE_GUARD_S = 5.0


def worker_pids(server) -> set[int]:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return {int(pid) for pid in children.split()}


def all_ready(server, workers: int, boots: int | None = None) -> None:
    """Wait until each process has loaded its model: none of many probes in a row, over new connections, says no."""
    boots = boots or workers
    server.wait_until(
        lambda: (
            server.text().count("is ready") >= boots
            and len(worker_pids(server)) == workers
            and all(server.get("/healthz").status_code == 200 for _ in range(READS))
        )
    )


def samples(server, query: str = "") -> dict[tuple[str, tuple], float]:
    """Every sample by its name and labels."""
    answer = server.get("/metrics" + query)
    assert answer.status_code == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def counted(server) -> tuple[float, float, float]:
    """Rows that models have seen, requests, and the requests whose time was taken."""
    found = samples(server)
    predictions = (("method", "POST"), ("route", "/predict"), ("status", "200"))
    return (
        found.get(("inference_rows_total", (("model", "scripted"), ("version", "1"))), 0),
        found.get(("http_requests_total", predictions), 0),
        found.get(("http_request_duration_seconds_count", predictions), 0),
    )


def predict_many(server, count: int) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda value: server.predict([ECHO, value]).json()["predictions"], range(count)))
    assert answers == [[value] for value in range(count)]


def test_every_process_answers_with_the_numbers_of_all(start):
    server = start(WEB_WORKERS=3)
    all_ready(server, 3)
    predict_many(server, 100)
    server.wait_until(lambda: counted(server)[0] == 100)  # a batch is counted when its callers have been answered
    assert {counted(server) for _ in range(READS)} == {(100, 100, 100)}


def test_gauges_of_several_processes_become_one(start):
    server = start(WEB_WORKERS=3, MAX_BATCH_SIZE=1)
    all_ready(server, 3)
    found = samples(server)
    version = (("model", "scripted"), ("version", "1"))
    identity = (("device", "cpu"), ("format", "callable"), ("name", "scripted"), ("version", "1"))
    assert found["inference_model_info", identity] == 1
    assert found["inference_effective_max_batch_size", version] == 1
    assert found["inference_queue_depth", version] == 0


def in_files(directory: Path, name: str) -> float:
    """What the processes have written down of their own accord."""
    return sum(
        sample.value
        for metric in MultiProcessCollector(None, path=str(directory)).collect()
        if metric.name == name
        for sample in metric.samples
    )


def test_what_waits_is_known_in_time_although_nobody_asks_the_process_where_it_waits(start, tmp_path):
    shared = tmp_path / "counts"
    server = start(WEB_WORKERS=3, MAX_BATCH_SIZE=1, PROMETHEUS_MULTIPROC_DIR=shared)
    all_ready(server, 3)
    with ThreadPoolExecutor(30) as pool:
        # At most three of them are in a model, and all their clients leave before it is done.
        inside = [pool.submit(server.predict, [SLEEP, 5000], timeout=4) for _ in range(30)]
        server.wait_until(lambda: in_files(shared, "inference_queue_depth") >= 27, guard_s=STATE_GUARD_S)
        server.wait_until(lambda: in_files(shared, "inference_oldest_wait_seconds") > 0, guard_s=STATE_GUARD_S)
        assert all(isinstance(call.exception(), requests.Timeout) for call in inside)
    server.wait_until(lambda: in_files(shared, "inference_queue_depth") == 0, guard_s=STATE_GUARD_S)


def test_a_killed_process_takes_its_state_along_and_leaves_what_it_has_counted(start, tmp_path):
    shared = tmp_path / "counts"
    server = start(WEB_WORKERS=3, PROMETHEUS_MULTIPROC_DIR=shared)
    all_ready(server, 3)
    predict_many(server, 60)
    server.wait_until(lambda: counted(server)[0] == 60)
    killed = worker_pids(server)
    assert {int(file.stem.rpartition("_")[2]) for file in shared.glob("gauge_live*.db")} == killed
    seen = []
    for number, pid in enumerate(sorted(killed), start=1):
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda pid=pid: not list(shared.glob(f"gauge_live*_{pid}.db")), guard_s=STATE_GUARD_S)
        all_ready(server, 3, boots=3 + number)
        seen.append(counted(server))
    assert seen == [(60, 60, 60)] * 3
    assert worker_pids(server).isdisjoint(killed)
    predict_many(server, 40)
    server.wait_until(lambda: counted(server)[0] == 100)
    assert {counted(server) for _ in range(READS)} == {(100, 100, 100)}


def test_rows_that_waited_in_a_killed_process_wait_no_longer(start):
    server = start(WEB_WORKERS=2, MAX_BATCH_SIZE=1)
    all_ready(server, 2)
    with ThreadPoolExecutor(16) as pool:
        inside = [pool.submit(server.predict, [SLEEP, 20_000]) for _ in range(16)]
        server.wait_until(lambda: server.metric("inference_queue_depth") >= 12, guard_s=STATE_GUARD_S)
        for pid in worker_pids(server):
            os.kill(pid, signal.SIGKILL)
        assert all(isinstance(call.exception(), requests.ConnectionError) for call in inside)
    server.wait_until(lambda: server.get("/metrics").status_code == 200)
    assert server.metric("inference_queue_depth") == 0


def test_a_server_begins_at_zero_in_a_directory_that_another_has_left(start, tmp_path):
    shared = tmp_path / "counts"
    shared.mkdir()
    (shared / "notes.txt").write_text("not of the library")
    first = start(WEB_WORKERS=2, PROMETHEUS_MULTIPROC_DIR=shared)
    all_ready(first, 2)
    predict_many(first, 10)
    workers = worker_pids(first)
    for pid in (first.process.pid, *workers):
        os.kill(pid, signal.SIGKILL)
    first.process.wait(10)
    left = {file.name for file in shared.glob("*.db")}
    assert left
    second = start(WEB_WORKERS=2, PROMETHEUS_MULTIPROC_DIR=shared)
    assert counted(second) == (0, 0, 0)
    assert left.isdisjoint(file.name for file in shared.glob("*.db"))
    assert (shared / "notes.txt").exists()


def test_a_reload_keeps_what_was_counted(start):
    server = start(WEB_WORKERS=2)
    all_ready(server, 2)
    predict_many(server, 20)
    server.wait_until(lambda: counted(server)[0] == 20)
    before = worker_pids(server)
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: worker_pids(server).isdisjoint(before))
    all_ready(server, 2, boots=4)
    assert counted(server) == (20, 20, 20)


def test_sigterm_under_load_loses_no_accepted_request_of_any_process(start):
    server = start(WEB_WORKERS=2)
    all_ready(server, 2)
    outcomes: list[str] = []

    def client() -> None:
        for value in range(10_000):
            try:
                answer = server.predict([SLEEP, 20])  # a connection of its own each time
            except requests.ConnectionError as error:
                outcomes.append("refused" if "refused" in str(error).lower() else f"cut at {value}: {error}")
                return
            outcomes.append(str(answer.status_code))
            if answer.status_code != 200:
                return

    with ThreadPoolExecutor(16) as pool:
        for _ in range(16):
            pool.submit(client)
        server.wait_until(lambda: len(outcomes) > 200)
        server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert set(outcomes) <= {"200", "503", "refused"}


def test_the_directory_of_its_own_goes_with_the_server(start, tmp_path):
    server = start(WEB_WORKERS=2, TMPDIR=tmp_path)
    assert len(list(tmp_path.glob("jitney-metrics-*/counter_*.db"))) >= 1
    assert server.stop() == 0
    assert list(tmp_path.glob("jitney-metrics-*")) == []


def test_some_names_only_can_be_asked_for_and_no_process_speaks_of_itself(start):
    server = start(WEB_WORKERS=2)
    predict_many(server, 2)
    server.wait_until(lambda: counted(server)[0] == 2)
    chosen = samples(server, "?name[]=inference_rows_total&name[]=inference_queue_depth")
    assert {name for name, _ in chosen} == {"inference_rows_total", "inference_queue_depth"}
    assert samples(server, "?name[]=no_such_name") == {}
    everything = {name for name, _ in samples(server)}
    assert not any(name.startswith("process_") or name.endswith("_created") for name in everything)
    assert not any(label == "pid" for _, labels in samples(server) for label, _ in labels)
    openmetrics = requests.get(server.url + "/metrics", headers={"Accept": "application/openmetrics-text"}, timeout=10)
    assert openmetrics.text.endswith("# EOF\n")


def test_two_apps_in_each_process_count_together(start):
    server = start(app="doubled:app", WEB_WORKERS=2)
    all_ready(server, 2, boots=4)
    predict_many(server, 40)
    server.wait_until(lambda: counted(server)[0] == 40)
    server.get("/livez")
    assert {counted(server) for _ in range(READS)} == {(40, 40, 40)}
    found = samples(server)
    timed = {dict(labels)["route"] for name, labels in found if name == "http_request_duration_seconds_count"}
    assert timed == {"/predict"}
    assert "Duplicated" not in server.text()


def test_the_start_says_what_several_processes_cost(start):
    server = start(WEB_WORKERS=3, wait=False)
    server.wait_until(lambda: "3 worker processes: each loads a whole model" in server.text())
    assert f"has {max(1, cpu_count() // 3)} native threads" in server.text()


def test_the_command_line_has_the_last_word_on_the_number_of_processes(start):
    server = start("-w", "2", WEB_WORKERS=3)
    all_ready(server, 2)
    assert "2 worker processes" in server.text()
    predict_many(server, 20)
    server.wait_until(lambda: counted(server)[0] == 20)
    assert {counted(server) for _ in range(READS)} == {(20, 20, 20)}


def test_a_single_process_counts_in_memory_whatever_directory_is_set(start, tmp_path):
    shared = tmp_path / "counts"
    shared.mkdir()
    server = start(PROMETHEUS_MULTIPROC_DIR=shared)
    predict_many(server, 3)
    server.wait_until(lambda: counted(server)[0] == 3)
    assert server.metric("process_resident_memory_bytes") > 0
    assert list(shared.iterdir()) == []


def test_a_second_process_that_a_signal_asks_for_is_warned_about(start):
    server = start()
    server.process.send_signal(signal.SIGTTIN)
    server.wait_until(lambda: "start with WEB_WORKERS=2" in server.text(), guard_s=10)


def test_a_directory_that_cannot_be_used_stops_the_start(start, tmp_path):
    (tmp_path / "file").touch()
    server = start(wait=False, WEB_WORKERS=2, PROMETHEUS_MULTIPROC_DIR=tmp_path / "file" / "counts")
    assert server.process.wait(60) == 1
    assert "PROMETHEUS_MULTIPROC_DIR" in server.text()
    assert "Traceback" not in server.text()
