"""From a path to a loader, and what may go wrong on the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loaders import (
    DeviceError,
    MissingDependencyError,
    ModelHandle,
    ModelLoadError,
    TabularInput,
    UnknownFormatError,
    UnsafePathError,
    known_formats,
    load_model,
    register_loader,
    registry,
)
from loaders.dependencies import require


class Recorder:
    """A loader that notes what it was asked for."""

    fmt = "recorded"

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.asked: dict[str, Any] = {}
        self.closed = 0

    def load(self, path: Path, *, name: str, version: str, metadata: Mapping[str, Any] | None = None) -> ModelHandle:
        self.asked = {"path": path, "name": name, "version": version, "metadata": metadata}
        if self.error is not None:
            raise self.error
        return ModelHandle(name, version, self.fmt, list, TabularInput(width=4), release=self._close)

    def _close(self) -> None:
        self.closed += 1


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    loader = Recorder()
    register_loader("recorded", loader)
    yield loader
    registry._registered.pop("recorded")


def test_importing_the_package_imports_no_framework() -> None:
    heavy = {"torch", "transformers", "tokenizers", "onnxruntime", "joblib", "sklearn", "pandas"}
    code = f"import sys, loaders; print(sorted({heavy!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"


def test_a_bare_file_is_named_after_its_stem(tmp_path: Path, recorder: Recorder) -> None:
    path = tmp_path / "digits.v2.bin"
    path.touch()
    handle = load_model(path, "recorded", device="cpu")
    assert (handle.name, handle.version, handle.path) == ("digits.v2", "1", path.resolve())
    assert recorder.asked["metadata"] == {"device": "cpu", "trusted": False, "pad_to_multiple_of": None}


def test_what_is_given_wins_over_the_bundle(tmp_path: Path, recorder: Recorder) -> None:
    (tmp_path / "m.bin").touch()
    (tmp_path / "jitney.toml").write_text('[model]\nname = "a"\nversion = "2"\nformat = "other"\nfile = "m.bin"\n')
    with pytest.raises(UnknownFormatError, match="'other'"):
        load_model(tmp_path)
    handle = load_model(tmp_path, "recorded", name="b", version="3", allow_pickle=True)
    assert (handle.name, handle.version) == ("b", "3")
    assert recorder.asked["metadata"]["trusted"] is True
    assert recorder.asked["metadata"]["model"]["name"] == "a"


def test_a_bundle_without_a_name_is_called_after_its_directory(tmp_path: Path, recorder: Recorder) -> None:
    directory = tmp_path / "digits.bundle"
    directory.mkdir()
    (directory / "jitney.toml").write_text('[model]\nformat = "recorded"\n')
    assert load_model(directory).name == "digits.bundle"
    assert recorder.asked["path"] == directory.resolve()


def test_a_model_that_contradicts_its_bundle_is_closed_again(tmp_path: Path, recorder: Recorder) -> None:
    (tmp_path / "jitney.toml").write_text('[model]\nformat = "recorded"\n[input]\nkind = "tabular"\nwidth = 5\n')
    with pytest.raises(ModelLoadError, match=r"\[input\] width"):
        load_model(tmp_path)
    assert recorder.closed == 1


def test_the_format_is_told_by_the_name_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"not a model")
    (tmp_path / "model.onnx").symlink_to("blob")
    with pytest.raises(ModelLoadError, match="not an ONNX model"):
        load_model(tmp_path / "model.onnx")


@pytest.mark.parametrize(("name", "reason"), [("model.h5", r"suffix '\.h5'.*MODEL_FORMAT"), ("model", "suffix ''")])
def test_a_file_that_tells_no_format_is_refused_with_the_setting(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UnknownFormatError, match=reason):
        load_model(tmp_path / name)


def test_a_plug_in_package_brings_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "plug_in-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-in\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        "[jitney.loaders]\nplugged = plug_in_for_jitney:Loader\nbroken = plug_in_for_jitney:Missing\n"
    )
    (tmp_path / "plug_in_for_jitney.py").write_text(
        "from loaders import ModelHandle\n"
        "class Loader:\n"
        "    fmt = 'plugged'\n"
        "    def load(self, path, *, name, version, metadata=None):\n"
        "        return ModelHandle(name, version, self.fmt, list)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "m.bin").touch()
    assert {"plugged", "onnx"} <= set(known_formats())
    assert load_model(tmp_path / "m.bin", "plugged").fmt == "plugged"
    with pytest.raises(ModelLoadError, match="plug-in 'plug_in_for_jitney:Missing'"):
        load_model(tmp_path / "m.bin", "broken")


@pytest.mark.parametrize(("fmt", "loader"), [("", Recorder()), ("mine", object())])
def test_what_is_no_loader_cannot_be_registered(fmt: str, loader: Any) -> None:
    with pytest.raises(TypeError):
        register_loader(fmt, loader)


def test_an_empty_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match="neither"):
        load_model(tmp_path)


def test_a_path_outside_the_root_is_refused_before_it_is_read(tmp_path: Path, recorder: Recorder) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "m.bin").touch()
    with pytest.raises(UnsafePathError):
        load_model(tmp_path / "m.bin", "recorded", root=tmp_path / "root")
    assert recorder.asked == {}


def test_any_failure_becomes_a_load_error_with_its_cause(tmp_path: Path, recorder: Recorder) -> None:
    recorder.error = KeyError("weights")
    (tmp_path / "m.bin").touch()
    with pytest.raises(ModelLoadError, match="'m' could not be loaded as recorded: KeyError: 'weights'") as caught:
        load_model(tmp_path / "m.bin", "recorded")
    assert caught.value.__cause__ is recorder.error


def test_the_packages_own_errors_come_through_as_they_are(tmp_path: Path, recorder: Recorder) -> None:
    recorder.error = DeviceError("no such device")
    (tmp_path / "m.bin").touch()
    with pytest.raises(DeviceError) as caught:
        load_model(tmp_path / "m.bin", "recorded")
    assert caught.value is recorder.error


@pytest.mark.parametrize(
    ("source", "error", "reason"),
    [
        ("import not_there_at_all", ModelLoadError, "lacks a package"),
        ("raise ImportError('libcudart.so.12: cannot open')", ModelLoadError, "libcudart"),
        ("raise OSError('wrong architecture')", ModelLoadError, "wrong architecture"),
    ],
)
def test_a_package_that_is_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, error: type[Exception], reason: str
) -> None:
    (tmp_path / "a_broken_framework.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=reason):
        require("a_broken_framework", extra="torch")


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(MissingDependencyError, match=r"not_there_at_all.*pip install 'jitney\[onnx\]'"):
        require("not_there_at_all", extra="onnx")
