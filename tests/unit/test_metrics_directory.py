from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from service.metrics.directory import (
    VARIABLE,
    NoDirectory,
    count_alone,
    count_together,
    counts_together,
    forget_process,
    remove,
)


@pytest.fixture
def before_the_library(monkeypatch):
    """As in a master process, which has not imported what the other tests of this one have."""
    monkeypatch.delitem(sys.modules, "prometheus_client", raising=False)


def names(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


@pytest.mark.usefixtures("before_the_library")
def test_of_a_directory_that_is_given_only_the_files_of_the_library_go(tmp_path):
    for name in ("counter_7.db", "gauge_livesum_7.db", "notes.txt"):
        (tmp_path / name).touch()
    environ = {VARIABLE: str(tmp_path)}
    assert count_together(environ) is None, "it is not ours to remove"
    assert names(tmp_path) == {"notes.txt"}
    assert environ == {VARIABLE: str(tmp_path)}
    assert counts_together(environ)


@pytest.mark.usefixtures("before_the_library")
def test_a_directory_that_is_given_is_made_where_there_is_none(tmp_path):
    count_together({VARIABLE: str(tmp_path / "deep" / "counts")})
    assert (tmp_path / "deep" / "counts").is_dir()


@pytest.mark.usefixtures("before_the_library")
def test_without_one_a_new_directory_of_the_processes_own_user_is_made_and_can_be_removed():
    someone = (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    environ: dict[str, str] = {VARIABLE: ""}
    own = count_together(environ, owner=someone)
    assert own is not None
    try:
        assert environ == {VARIABLE: str(own)}
        state = own.stat()
        assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (*someone, 0o700)
    finally:
        remove(own)
    assert not own.exists()
    remove(own)


@pytest.mark.usefixtures("before_the_library")
def test_a_master_that_replaces_another_keeps_what_the_processes_of_that_one_have_counted(tmp_path):
    (tmp_path / "counter_7.db").touch()
    count_together({VARIABLE: str(tmp_path)}, is_upgrade=True)
    assert names(tmp_path) == {"counter_7.db"}


@pytest.mark.usefixtures("before_the_library")
def test_the_old_name_of_the_variable_holds_and_is_replaced(tmp_path):
    environ = {VARIABLE.lower(): str(tmp_path)}
    count_together(environ)
    assert environ == {VARIABLE: str(tmp_path)}


@pytest.mark.usefixtures("before_the_library")
def test_a_directory_that_cannot_be_made_is_named_with_its_setting(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NoDirectory, match=rf"counts.*{VARIABLE}"):
        count_together({VARIABLE: str(tmp_path / "file" / "counts")})


def test_it_is_too_late_once_the_library_has_been_imported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", sys)
    (tmp_path / "counter_7.db").touch()
    with pytest.raises(NoDirectory, match="WEB_WORKERS=1"):
        count_together({VARIABLE: str(tmp_path)})
    assert names(tmp_path) == {"counter_7.db"}


@pytest.mark.parametrize("name", [VARIABLE, VARIABLE.lower()])
def test_one_process_counts_alone_under_either_name(name):
    environ = {name: "/somewhere", "OTHER": "1"}
    assert count_alone(environ)
    assert environ == {"OTHER": "1"}
    assert not counts_together(environ)
    assert not count_alone(environ)


def test_of_a_process_that_has_ended_what_it_counted_stays(tmp_path, monkeypatch):
    for name in ("counter_7.db", "histogram_7.db", "gauge_livesum_7.db", "gauge_livemax_7.db", "gauge_livesum_77.db"):
        (tmp_path / name).touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    forget_process(7)
    assert names(tmp_path) == {"counter_7.db", "histogram_7.db", "gauge_livesum_77.db"}
