"""Threads, processes, open files and times: what the settings promise against what there is."""

from __future__ import annotations

from typing import Any

import pytest

from service.doctor.findings import Finding, Verdict, error, ok, warning, worst
from service.doctor.gunicorn_values import GunicornValues, WrongOptions, check_gunicorn, gunicorn_values
from service.doctor.threads import (
    check_instances,
    check_native_threads,
    check_open_files,
    check_placement,
    check_threads,
    check_workers,
)
from service.doctor.timeouts import check_timeouts
from service.settings import ModelSharing, Settings

OURS = "service.server.worker.Worker"
CONFIG: dict[str, Any] = {
    "workers": 1,
    "threads": 72,
    "worker_connections": 1072,
    "keepalive": 75,
    "graceful_timeout": 35,
    "worker_class": OURS,
    "preload_app": False,
    "max_requests": 0,
}


def values(*arguments: str, **environ: str) -> GunicornValues:
    return gunicorn_values(CONFIG, arguments, environ)


def wrong(findings: Any) -> list[tuple[str, str]]:
    return [(each.verdict.value, each.fix) for each in findings if each.verdict is not Verdict.OK]


def test_the_worst_verdict_is_that_of_all():
    fine, doubtful, bad = ok("a", "b"), warning("a", "b", "c"), error("a", "b", "c")
    assert [worst([fine, bad, doubtful]), worst([doubtful, fine]), worst([fine]), worst([])] == [
        "error", "warning", "ok", "ok"
    ]  # fmt: skip
    assert fine == Finding("a", "b", Verdict.OK, "")


def test_without_options_gunicorn_gets_what_the_settings_say():
    assert values().overridden == ()
    assert (values().threads, values().workers, values().worker_class) == (72, 1, OURS)
    assert wrong(check_gunicorn(values(), OURS, {})) == []


def test_a_command_line_wins_over_the_variable_and_that_over_the_settings():
    given = values("--threads", "9", GUNICORN_CMD_ARGS="--threads=8 --workers=2 --log-level debug")
    assert (given.threads, given.workers, given.overridden) == (9, 2, ("threads", "workers"))
    assert wrong(check_gunicorn(given, OURS, {})) == [("warning", "leave them out")]


def test_options_that_gunicorn_does_not_know_are_told_in_its_words():
    with pytest.raises(WrongOptions, match="unrecognized arguments: --workerz"):
        values("--workerz", "2")


def test_a_variable_that_is_no_command_line_is_named():
    with pytest.raises(WrongOptions, match="GUNICORN_CMD_ARGS: no closing quotation"):
        values(GUNICORN_CMD_ARGS="--bind 'unclosed")


def test_what_cannot_work_is_an_error():
    found = wrong(check_gunicorn(values("--preload", "-k", "gevent", "--max-requests", "9"), OURS, {}))
    assert found == [
        ("warning", "leave them out"),
        ("error", "leave --preload out"),
        ("error", "leave --worker-class out"),
        ("warning", "leave --max-requests out"),
    ]
    assert wrong(check_gunicorn(values(), OURS, {"WEB_CONCURRENCY": "4"})) == [("warning", "unset it")]


@pytest.mark.parametrize(
    ("settings", "threads", "fixes"),
    [
        ({}, 72, []),
        ({}, 63, ["THREADS=72"]),
        ({}, 64, ["THREADS=72"]),
        ({"max_batch_size": 8}, 72, []),
        ({"model_instances": 2}, 72, ["THREADS=104"]),
        ({"model_instances": 2}, 104, []),
        ({"max_queue_size": 16, "max_instances": 16}, 72, ["MAX_QUEUE_SIZE=64"]),
        ({"max_queue_size": 64, "max_instances": 64}, 72, []),  # requests that wait for a thread count too
        ({"max_queue_size": 512, "max_instances": 1024}, 600, ["MAX_INSTANCES=512"]),
    ],
)
def test_threads_fit_batches_and_the_queue_holds_one(settings, threads, fixes):
    found = wrong(check_threads(Settings(**settings), values("--threads", str(threads))))
    assert [fix for _, fix in found] == fixes


def test_a_second_process_loads_a_second_model():
    assert wrong([check_workers(values())]) == []
    assert [verdict for verdict, _ in wrong([check_workers(values("--workers", "2"))])] == ["warning"]
    assert wrong([check_workers(values("--workers", "2"), ModelSharing.ONE)]) == []
    assert "changes nothing" in check_workers(values(), ModelSharing.ONE).found


@pytest.mark.parametrize(
    ("settings", "cpus", "workers", "fixes"),
    [
        ({}, 1, 4, []),
        ({"model_instances": 2}, 2, 1, []),
        ({"model_instances": 4}, 2, 1, ["MODEL_INSTANCES=2"]),
        ({"model_instances": 2}, 2, 2, ["MODEL_INSTANCES=1"]),
        ({"model_instances": 2, "model_sharing": "one"}, 2, 2, []),
        ({"model_instances": 2, "device": "cuda"}, 1, 1, []),
        ({"model_instances": 3, "device": "cuda:1"}, 8, 1, ["MODEL_INSTANCES=2"]),
    ],
)
def test_copies_of_a_model_are_no_more_than_the_cpus_and_on_one_device_two_threads_do(settings, cpus, workers, fixes):
    assert [fix for _, fix in wrong([check_instances(Settings(**settings), cpus, workers)])] == fixes


def test_where_several_copies_run_nobody_waits_for_a_measurement():
    assert "MODEL_INSTANCES=2" in check_placement(Settings(model_instances=2), 4, 1).found


def test_front_ends_keep_to_a_core_however_many_copies_their_owner_has():
    settings = Settings(model_instances=2, model_sharing="one")
    assert "a front end keeps to one core" in check_placement(settings, 4, 2).found
    assert "the process that owns it" in check_instances(settings, 4, 2).found


def test_copies_of_a_model_share_the_native_threads():
    found = wrong([check_native_threads({"OMP_NUM_THREADS": "4"}, 8, 2, 2)])
    assert [fix for _, fix in found] == ["OMP_NUM_THREADS=2"]


@pytest.mark.parametrize(
    ("environ", "cpus", "workers", "fix"),
    [
        ({}, 4, 1, None),
        ({"OMP_NUM_THREADS": "4"}, 4, 1, None),
        ({"OMP_NUM_THREADS": "4,2"}, 4, 1, None),
        ({"OMP_NUM_THREADS": "many"}, 4, 1, None),
        ({"OMP_NUM_THREADS": "8"}, 4, 1, "OMP_NUM_THREADS=4"),
        ({"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "1"}, 4, 2, "OMP_NUM_THREADS=2 MKL_NUM_THREADS=2"),
        ({"OPENBLAS_NUM_THREADS": "3"}, 2, 4, "OPENBLAS_NUM_THREADS=1"),
    ],
)
def test_native_threads_are_not_more_than_the_cpus_of_the_container(environ, cpus, workers, fix):
    assert [each for _, each in wrong([check_native_threads(environ, cpus, workers)])] == ([fix] if fix else [])


def test_there_may_be_as_many_open_files_as_connections():
    assert wrong([check_open_files(values(), 1024)]) == [("warning", "ulimit -n 1400")]
    assert wrong([check_open_files(values(), 1400)]) == []
    assert wrong([check_open_files(values(), -1)]) == []


@pytest.mark.parametrize(
    ("settings", "stop_s", "found"),
    [
        ({}, 35, []),
        ({"max_batch_latency_ms": 50, "request_timeout_ms": 50}, 35, [("error", "MAX_BATCH_LATENCY_MS=5")]),
        ({"stall_limit_ms": 30_000}, 35, [("warning", "STALL_LIMIT_MS=60000")]),
        ({}, 31, [("error", "GRACEFUL_TIMEOUT_S=32")]),
        ({}, 32, []),
    ],
)
def test_whoever_waits_waits_longer_than_whom_he_waits_for(settings, stop_s, found):
    assert wrong(check_timeouts(Settings(**settings), values("--graceful-timeout", str(stop_s)))) == found


@pytest.mark.parametrize(
    ("settings", "cores", "workers", "fix"),
    [
        ({}, 2, 1, None),
        ({"thread_placement": "off", "warmup": False}, 2, 1, None),
        ({"thread_placement": "pin"}, 2, 2, None),
        ({"thread_placement": "pin"}, 2, 3, "WEB_WORKERS=2, or THREAD_PLACEMENT=auto"),
        ({"warmup": False}, 2, 1, "WARMUP=true, or THREAD_PLACEMENT=pin"),
        ({"warmup": False}, 1, 1, None),
        ({"thread_placement": "pin"}, 0, 3, None),
    ],
)
def test_where_threads_run_is_told_and_what_would_keep_it_from_being_chosen_well(settings, cores, workers, fix):
    found = check_placement(Settings(**settings), cores, workers)
    assert [each for _, each in wrong([found])] == ([fix] if fix else [])
