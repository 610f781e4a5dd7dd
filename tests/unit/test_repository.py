"""What a directory of bundles holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loaders.errors import ModelError
from service.models.repository import Repository, newest


def make(root: Path, *versions: str) -> Repository:
    """`versions` with a bundle's description in each; those that end in a slash are empty."""
    for version in versions:
        (root / version).mkdir(parents=True)
        if not version.endswith("/"):
            (root / version / "jitney.toml").touch()
    return Repository(str(root))


def test_models_and_versions_are_directories_of_directories(tmp_path):
    repository = make(tmp_path, "iris/1", "digits/2", "digits/10", "digits/1.5")
    assert repository.names() == ["digits", "iris"]
    assert repository.versions("digits") == ["1.5", "2", "10"]
    assert repository.path("digits", "10") == tmp_path / "digits" / "10"


def test_what_cannot_be_a_model_is_passed_over(tmp_path):
    repository = make(tmp_path, "iris/1", "iris/2/", "iris/.3", ".git/1", "empty/", "a b/1", "-x/1")
    (tmp_path / "README.md").touch()
    (tmp_path / "iris" / "notes.txt").touch()
    assert repository.names() == ["iris"]
    assert repository.versions("iris") == ["1"]
    assert repository.versions("empty") == repository.versions("nothing") == []
    assert repository.passed_over() == ["-x/1", "a b/1", "empty", "iris/2"]
    assert (tmp_path / "iris" / ".3").rename(tmp_path / "iris" / "3")
    assert repository.versions("iris") == ["1", "3"]


def test_a_hugging_face_directory_is_a_version(tmp_path):
    repository = make(tmp_path, "text/1/")
    (tmp_path / "text" / "1" / "config.json").touch()
    assert repository.names() == ["text"]


def test_a_version_whose_files_change_is_noticed(tmp_path):
    repository = make(tmp_path, "iris/1")
    before = repository.changed_at("iris", "1")
    os.utime(tmp_path / "iris" / "1" / "jitney.toml", (before + 5, before + 5))
    assert repository.changed_at("iris", "1") == before + 5
    assert repository.changed_at("iris", "9") == 0.0


@pytest.mark.parametrize("name, version", [("..", "1"), ("iris", ".."), ("iris/1", ""), ("iris", "1/../1"), ("", "1")])
def test_a_name_from_a_request_leads_nowhere_else(tmp_path, name, version):
    repository = make(tmp_path / "root", "iris/1")
    (tmp_path / "1").mkdir()
    assert repository.path(name, version) is None
    assert ".." not in repository.versions("..")


def test_a_repository_without_a_bundle_is_refused_with_its_setting(tmp_path):
    with pytest.raises(ModelError, match=r"MODEL_REPOSITORY=.* holds no bundle at <name>/<version>/"):
        make(tmp_path, "empty/").names()
    with pytest.raises(ModelError, match=r"MODEL_REPOSITORY=.* cannot be read: No such file"):
        Repository(str(tmp_path / "gone")).names()


@pytest.mark.parametrize(
    "versions, expected",
    [
        (["1", "2", "10"], "10"),
        (["1.9", "1.10"], "1.10"),
        (["2", "2-rc1"], "2"),
        (["2", "3.tmp"], "2"),
        (["2", "2.bak"], "2"),
        (["1.0-rc1", "1.0-rc2"], "1.0-rc2"),
        (["v2", "1"], "v2"),
        (["2026-05", "2026-11"], "2026-11"),
        (["main", "3.tmp"], "3.tmp"),
        (["a", "b"], "b"),
        (["1", "a"], "1"),
        (["01", "1"], "1"),
        ([], None),
    ],
)
def test_the_newest_version_is_the_highest_number(versions, expected):
    assert newest(versions) == expected
    assert newest(reversed(versions)) == expected
