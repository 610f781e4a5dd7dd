"""Model paths: local, existing, and inside their root."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaders import ModelLoadError, UnsafePathError, load_model
from loaders.paths import resolve_inside, resolve_model_path


@pytest.mark.parametrize(
    "path",
    [
        "http://example.org/model.onnx",
        "HTTPS://example.org/model.onnx",
        "s3://bucket/model.pkl",
        "file:///etc/passwd",
        "hf://org/name",
        Path("http://example.org/model.onnx"),
    ],
)
def test_a_url_is_refused_and_called_one(path: str | Path) -> None:
    with pytest.raises(UnsafePathError, match="is a URL"):
        load_model(path)


@pytest.mark.parametrize("name", ["bert-base/uncased", "sentence-transformers/all-MiniLM-L6-v2"])
def test_a_hub_name_is_refused_and_not_looked_up(name: str) -> None:
    with pytest.raises(UnsafePathError, match="hub names are not looked up"):
        load_model(name)


@pytest.mark.parametrize("name", ["missing.onnx", "no/such/model.onnx", "bert-base-uncased"])
def test_a_missing_file_is_named(name: str) -> None:
    with pytest.raises(ModelLoadError, match=f"no model at '{name}': No such file"):
        resolve_model_path(name)


def test_a_missing_file_in_a_directory_that_is_there_is_no_hub_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match="no model at"):
        resolve_model_path("models/digits")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_cannot_be_one_is_refused(path: str) -> None:
    with pytest.raises(ModelLoadError, match="empty or holds a NUL"):
        resolve_model_path(path)


def test_links_are_followed_and_a_loop_of_them_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.onnx").touch()
    (tmp_path / "link.onnx").symlink_to("real.onnx")
    assert resolve_model_path(tmp_path / "link.onnx") == (tmp_path / "real.onnx").resolve()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ModelLoadError, match="no model at"):
        resolve_model_path(tmp_path / "loop")


def test_a_path_stays_inside_its_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "in.onnx").touch()
    (tmp_path / "out.onnx").touch()
    (root / "link.onnx").symlink_to(tmp_path / "out.onnx")
    assert resolve_model_path(root / "in.onnx", root=root).name == "in.onnx"
    for escape in (root / ".." / "out.onnx", root / "link.onnx", tmp_path / "out.onnx"):
        with pytest.raises(UnsafePathError, match="leads outside"):
            resolve_model_path(escape, root=root)


def test_a_root_that_is_a_link_is_a_root_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "m.onnx").touch()
    (tmp_path / "alias").symlink_to("root")
    assert resolve_model_path(tmp_path / "alias" / "m.onnx", root=tmp_path / "alias").name == "m.onnx"


def test_a_directory_whose_name_begins_like_the_root_is_outside(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root-other").mkdir()
    with pytest.raises(UnsafePathError):
        resolve_model_path(tmp_path / "root-other", root=tmp_path / "root")


@pytest.mark.parametrize("file", ["../out", "/etc/passwd", "http://x/y", "a\0b", "../missing"])
def test_a_file_of_a_directory_stays_in_it(tmp_path: Path, file: str) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    (tmp_path / "out").touch()
    with pytest.raises(UnsafePathError, match="the key"):
        resolve_inside(directory, file, what="the key")


def test_a_missing_file_of_a_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="the key: 'missing' cannot be read"):
        resolve_inside(tmp_path, "missing", what="the key")
