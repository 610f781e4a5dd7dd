"""Models that are to be served, looked at without loading one; and what is installed for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaders.bundle import pin
from service.doctor.findings import Finding, Verdict
from service.doctor.installed import (
    check_device,
    check_format,
    check_http_parser,
    check_import_names,
    check_onnx_wheels,
    cuda_cards,
    directory_of,
    is_importable,
    is_installed,
    torch_cuda_version,
)
from service.doctor.models import ModelFacts, look_at_models
from service.settings import Settings


def bundle(directory: Path, file: str = "m.joblib", toml: str = "", content: bytes = b"never unpickled") -> Path:
    directory.mkdir(parents=True)
    (directory / file).write_bytes(content)
    (directory / "jitney.toml").write_text(f'[model]\nfile = "{file}"\n{toml}')
    return directory


def look(**settings: Any) -> list[ModelFacts]:
    return look_at_models(Settings(**settings))


def wrong(findings: Any) -> list[tuple[str, str]]:
    return [(each.verdict.value, each.fix) for each in findings if each.verdict is not Verdict.OK]


def found(models: list[ModelFacts]) -> list[tuple[str, str]]:
    return wrong(finding for model in models for finding in model.findings)


def test_a_pinned_bundle_is_well(tmp_path):
    directory = bundle(tmp_path / "b", toml='[input]\nkind = "image"\nsize = [4, 4]\n')
    pin(directory)
    (model,) = look(model_path=str(directory))
    assert found([model]) == []
    assert (model.fmt, model.has_pictures) == ("joblib", True)


def test_a_file_that_was_changed_after_it_was_pinned_is_an_error(tmp_path):
    directory = bundle(tmp_path / "b")
    pin(directory)
    (directory / "m.joblib").write_bytes(b"something else")
    assert found(look(model_path=str(directory))) == [("error", f"jitney pin {directory}")]


def test_a_pickle_that_nothing_pins_is_an_error_and_with_leave_a_warning(tmp_path):
    directory = bundle(tmp_path / "b")
    fix = f"jitney pin {directory}"
    assert found(look(model_path=str(directory))) == [("error", fix)]
    assert found(look(model_path=str(directory), allow_pickle=True)) == [("warning", fix)]
    (tmp_path / "m.pkl").touch()
    ((verdict, fix),) = found(look(model_path=str(tmp_path / "m.pkl")))
    assert (verdict, "jitney pin" in fix) == ("error", True)


def test_other_formats_need_no_pin(tmp_path):
    (tmp_path / "m.onnx").touch()
    assert found(look(model_path=str(tmp_path / "m.onnx"))) == []


@pytest.mark.parametrize(
    ("path", "said"),
    [("absent.onnx", "no model at"), ("https://example.org/m.onnx", "is a URL"), ("m.bin", "tells no format")],
)
def test_a_path_that_leads_to_no_model_is_told(path, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.bin").touch()
    ((finding,),) = (model.findings for model in look(model_path=path))
    assert finding.verdict is Verdict.ERROR
    assert said in finding.found


def test_a_bundle_that_is_written_wrong_is_told_by_its_key(tmp_path):
    directory = bundle(tmp_path / "b", toml="nmae = 1\n")
    ((finding,),) = (model.findings for model in look(model_path=str(directory)))
    assert "[model] nmae" in finding.found


def test_a_key_that_its_format_would_ignore_is_told(tmp_path):
    directory = bundle(tmp_path / "b", file="m.onnx", toml='dtype = "float16"\n')
    ((finding,),) = (model.findings for model in look(model_path=str(directory)))
    assert finding.verdict is Verdict.ERROR
    assert "[model] dtype" in finding.found


def test_a_format_that_only_the_program_knows_is_a_warning(tmp_path):
    (tmp_path / "m.bin").touch()
    assert [verdict for verdict, _ in found(look(model_path=str(tmp_path / "m.bin"), model_format="own"))] == [
        "warning"
    ]


def test_no_model_at_all_may_be_an_app_of_ones_own():
    assert [verdict for verdict, _ in found(look())] == ["warning"]


def test_of_a_repository_the_newest_versions_and_what_is_passed_over_are_looked_at(tmp_path):
    pin(bundle(tmp_path / "a" / "1"))
    bundle(tmp_path / "a" / "2")
    bundle(tmp_path / "b" / "1", file="m.onnx")
    (tmp_path / "c" / "1").mkdir(parents=True)
    models = look(model_repository=str(tmp_path), model_name="a", model_cache_size=1)
    assert [model.fmt for model in models] == [None, "joblib", "onnx"]
    assert found(models) == [
        ("warning", "add a jitney.toml, or move it"),
        ("warning", "MODEL_CACHE_SIZE=2"),
        ("error", f"jitney pin {tmp_path / 'a' / '2'}"),
    ]
    assert ("warning", "MODEL_NAME=a") in found(look(model_repository=str(tmp_path)))


def test_a_repository_without_a_bundle_is_an_error(tmp_path):
    assert [verdict for verdict, _ in found(look(model_repository=str(tmp_path)))] == ["error"]


def test_what_a_format_needs_is_named_with_the_extra_that_brings_it():
    nothing = {"is_importable": lambda _module: False}
    assert wrong(check_format("onnx", has_pictures=False, **nothing)) == [("error", "pip install 'jitney[onnx]'")]
    assert wrong(check_format("transformers", has_pictures=True, **nothing)) == [
        ("error", "pip install 'jitney[transformers]'"),
        ("error", "pip install 'jitney[images]'"),
    ]
    assert wrong(check_format("pickle", has_pictures=False, **nothing)) == [
        ("warning", "pip install 'jitney[sklearn]'")
    ]
    assert wrong(check_format("onnx", has_pictures=True, is_importable=lambda _module: True)) == []
    assert list(check_format("own", has_pictures=False)) == []


def test_two_wheels_in_one_folder_are_an_error():
    both, one = check_onnx_wheels(lambda _name: True), check_onnx_wheels(lambda name: name == "onnxruntime")
    assert both is not None
    assert both.verdict is Verdict.ERROR
    assert one is not None
    assert one.verdict is Verdict.OK
    assert check_onnx_wheels(lambda _name: False) is None


def test_the_parser_in_c_is_recommended():
    assert wrong([check_http_parser(lambda _module: False)]) == [("warning", "pip install 'jitney[fast]'")]
    assert wrong([check_http_parser(lambda _module: True)]) == []


def test_what_is_there_is_found_without_importing_it():
    assert (is_importable("json"), is_importable("no_such_module")) == (True, False)
    assert (is_installed("pydantic"), is_installed("no-such-distribution")) == (True, False)
    assert directory_of("no_such_module") is None
    assert (directory_of("json") / "decoder.py").is_file()


@pytest.mark.parametrize(
    ("version_file", "cuda"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", None),
        ("__version__ = '2.13.0'\ncuda: Optional[str] = '12.6'\n", "12.6"),
        ("cuda = '13.0'\n", "13.0"),
        ("", None),
        (None, None),
    ],
)
def test_what_torch_was_built_for_stands_in_a_file_of_it(version_file, cuda, tmp_path):
    if version_file is not None:
        (tmp_path / "version.py").write_text(version_file)
    assert torch_cuda_version(tmp_path) == cuda
    assert torch_cuda_version(None) is None


@pytest.mark.parametrize(
    ("device", "fmt", "cards", "torch_cuda", "has_onnx_gpu", "verdict", "fix"),
    [
        ("cpu", "onnx", 0, None, False, "ok", ""),
        ("auto", None, 0, None, False, "ok", ""),
        ("auto", "onnx", 1, "12.6", False, "warning", "onnx-gpu"),
        ("auto", "transformers", 1, None, True, "warning", "torch's CUDA build"),
        ("auto", "transformers", 1, "12.6", False, "ok", ""),
        ("cuda", "onnx", 0, None, True, "error", "DEVICE=auto"),
        ("cuda:2", "pt2", 2, "12.6", False, "error", "DEVICE=cuda:1"),
        ("cuda:1", "pt2", 2, "12.6", False, "ok", ""),
        ("cuda", "pt2", 1, None, True, "error", "torch's CUDA build"),
        ("cuda", "joblib", 1, None, False, "ok", ""),
    ],
)
def test_a_device_needs_a_card_and_a_framework_that_can_use_it(
    device, fmt, cards, torch_cuda, has_onnx_gpu, verdict, fix
):
    finding: Finding = check_device(device, fmt, cards, torch_cuda, has_onnx_gpu)
    assert finding.verdict == verdict
    assert fix in finding.fix


@pytest.mark.parametrize(
    ("files", "environ", "cards"),
    [
        ([], {}, 0),
        (["nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"], {}, 2),
        (["dxg"], {}, 1),
        (["nvidia0", "nvidia1"], {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        (["nvidia0", "nvidia1"], {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, 1),
        (["nvidia0"], {"CUDA_VISIBLE_DEVICES": ""}, 0),
        (["nvidia0"], {"CUDA_VISIBLE_DEVICES": "0,1"}, 1),
    ],
)
def test_cards_are_counted_by_what_this_process_may_use(files, environ, cards, tmp_path):
    for name in files:
        (tmp_path / name).touch()
    assert cuda_cards(environ, tmp_path) == cards


def test_another_package_of_our_name_is_an_error_and_a_second_copy_a_warning(tmp_path):
    own, theirs, empty, copy = (tmp_path / name for name in ("own", "theirs", "empty", "copy"))
    for directory in (own / "service", theirs / "loaders", empty / "service", copy / "service" / "batching"):
        directory.mkdir(parents=True)
    for file in ("own/service/__init__.py", "theirs/service.py", "theirs/loaders/__init__.py"):
        (tmp_path / file).touch()
    for file in ("copy/service/__init__.py", "copy/service/batching/batcher.py"):
        (tmp_path / file).touch()
    assert wrong(check_import_names([own, empty, own], own)) == []
    (finding,) = check_import_names([own, theirs], own)
    assert finding.verdict is Verdict.ERROR
    assert "service in" in finding.found
    assert "loaders in" in finding.found
    assert [each.verdict for each in check_import_names([own, copy], own)] == [Verdict.WARNING]
