"""Devices by name, and CPUs by affinity and quota."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loaders import DeviceError
from loaders.devices import compute_threads, cpu_count, resolve_device


@pytest.mark.parametrize(
    ("requested", "there", "device"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cuda", 1, "cuda:0"),
        ("cuda:0", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_a_device_is_found_by_name(requested: str, there: int, device: str) -> None:
    assert resolve_device(requested, lambda: there) == device


def test_the_cpu_is_taken_without_looking_for_anything_else() -> None:
    def look() -> int:
        raise AssertionError("the framework was asked for CUDA devices")

    assert resolve_device("cpu", look) == "cpu"


@pytest.mark.parametrize(("requested", "there"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2), ("cuda:1", 1)])
def test_a_device_that_is_not_there_is_an_error_that_names_the_setting(requested: str, there: int) -> None:
    with pytest.raises(DeviceError, match=f"DEVICE={requested}"):
        resolve_device(requested, lambda: there)


@pytest.mark.parametrize("requested", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", "cuda:0 "])
def test_another_name_is_an_error_that_lists_the_right_ones(requested: str) -> None:
    with pytest.raises(DeviceError, match="allowed are auto, cpu, cuda and cuda:N"):
        resolve_device(requested, lambda: 4)


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


def cgroup(tmp_path: Path, membership: str, **files: str) -> dict[str, Path]:
    (tmp_path / "self").write_text(membership)
    root = tmp_path / "cgroup"
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return {"proc_cgroup": tmp_path / "self", "cgroup_root": root}


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("max 100000", 16),
        ("400000 100000", 4),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("3200000 100000", 16),
        ("200000", 2),
        ("", 16),
        ("0 0", 16),
    ],
)
def test_the_quota_of_a_group_is_kept(tmp_path: Path, quota: str, cpus: int) -> None:
    assert cpu_count(**cgroup(tmp_path, "0::/app\n", app__cpu_dot_max=quota)) == cpus


@pytest.mark.usefixtures("many_cpus")
def test_the_quota_of_a_parent_binds_its_children(tmp_path: Path) -> None:
    places = cgroup(tmp_path, "0::/a/b\n", a__cpu_dot_max="300000 100000", a__b__cpu_dot_max="max 100000")
    assert cpu_count(**places) == 3


@pytest.mark.usefixtures("many_cpus")
def test_in_a_container_the_mounted_root_is_the_group(tmp_path: Path) -> None:
    assert cpu_count(**cgroup(tmp_path, "0::/kubepods/pod7\n", cpu_dot_max="200000 100000")) == 2


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_a_quota_of_the_first_version_is_kept(tmp_path: Path, mount: str) -> None:
    files = {f"{mount}__app__cpu_dot_cfs_quota_us": "300000\n", f"{mount}__app__cpu_dot_cfs_period_us": "100000\n"}
    places = cgroup(tmp_path, "5:memory:/app\n4:cpu,cpuacct:/app\n", **files)
    assert cpu_count(**places) == 3


@pytest.mark.usefixtures("many_cpus")
def test_no_quota_of_the_first_version_means_no_limit(tmp_path: Path) -> None:
    files = {"cpu__cpu_dot_cfs_quota_us": "-1\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}
    assert cpu_count(**cgroup(tmp_path, "4:cpu:/\n", **files)) == 16


def test_the_affinity_is_kept_where_nothing_is_known_of_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 7}, raising=False)
    assert cpu_count(proc_cgroup=tmp_path / "none", cgroup_root=tmp_path) == 3


def test_a_system_without_affinity_counts_its_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cpu_count(proc_cgroup=tmp_path / "none", cgroup_root=tmp_path) == 5


@pytest.mark.parametrize("value", ["1", " 1 ", "1,4"])
def test_the_model_gets_no_more_threads_than_it_was_given(value: str) -> None:
    assert compute_threads({"OMP_NUM_THREADS": value}) == 1


@pytest.mark.parametrize("value", ["", "0", "-2", "many", "100000"])
def test_a_number_of_threads_that_says_nothing_leaves_the_cpus_there_are(value: str) -> None:
    assert compute_threads({"OMP_NUM_THREADS": value}) == cpu_count()
    assert compute_threads({}) == cpu_count()


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.parametrize(
    ("environ", "instances", "threads"),
    [
        ({}, 1, 16),
        ({}, 2, 8),
        ({}, 3, 5),
        ({}, 40, 1),
        ({"OMP_NUM_THREADS": "6"}, 4, 6),
        ({"OMP_NUM_THREADS": "64"}, 4, 16),
    ],
)
def test_copies_that_run_side_by_side_share_the_cpus(environ: dict[str, str], instances: int, threads: int) -> None:
    assert compute_threads(environ, instances=instances) == threads
