"""Files that run code when they are loaded are loaded only when someone vouched for them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from support.payload import Payload

from loaders import ModelLoadError, UnsafePathError, UntrustedModelError, load_model, pin
from loaders.formats.pickled import PickleLoader


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "the-payload-ran"


@pytest.fixture
def payload(tmp_path: Path, trace: Path) -> Path:
    path = tmp_path / "payload.pkl"
    path.write_bytes(pickle.dumps(Payload(trace)))
    return path


@pytest.mark.parametrize("fmt", ["pickle", "joblib"])
def test_a_pickle_that_nobody_vouched_for_is_not_even_opened(payload: Path, trace: Path, fmt: str) -> None:
    with pytest.raises(UntrustedModelError, match=r"sha256.*ALLOW_PICKLE"):
        load_model(payload, fmt)
    assert not trace.exists()


def test_the_payload_of_these_tests_does_run_when_pickles_are_allowed(payload: Path, trace: Path) -> None:
    with pytest.raises(ModelLoadError, match="no predict"):
        load_model(payload, allow_pickle=True)
    assert trace.exists()


def test_the_loader_itself_refuses_without_a_word_on_trust(payload: Path, trace: Path) -> None:
    with pytest.raises(UntrustedModelError):
        PickleLoader().load(payload, name="p", version="1")
    assert not trace.exists()


def test_a_wrong_digest_is_refused_before_unpickling_even_when_pickles_are_allowed(
    bundle: Callable[..., Path], payload: Path, trace: Path
) -> None:
    directory = bundle(f'[model]\nfile = "payload.pkl"\nsha256 = "{"0" * 64}"\n', payload)
    with pytest.raises(UntrustedModelError, match="sha256"):
        load_model(directory, allow_pickle=True)
    assert not trace.exists()


def test_a_wrong_digest_is_refused_for_formats_that_run_no_code_too(
    bundle: Callable[..., Path], digits_onnx: Path
) -> None:
    directory = bundle(f'[model]\nfile = "digits.onnx"\nsha256 = "{"0" * 64}"\n', digits_onnx)
    with pytest.raises(UntrustedModelError, match="sha256"):
        load_model(directory)


def test_an_unpinned_pickle_in_a_bundle_is_refused(bundle: Callable[..., Path], payload: Path, trace: Path) -> None:
    with pytest.raises(UntrustedModelError, match="sha256"):
        load_model(bundle('[model]\nfile = "payload.pkl"\n', payload))
    assert not trace.exists()


def test_a_pinned_pickle_is_loaded_until_it_is_changed(bundle: Callable[..., Path], digits_pickle: Path) -> None:
    directory = bundle('[model]\nname = "digits"\nfile = "digits.pkl"\n', digits_pickle)
    pin(directory)
    assert load_model(directory).name == "digits"
    with (directory / "digits.pkl").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(UntrustedModelError, match="pin it again"):
        load_model(directory)


def test_a_pickled_torch_module_is_not_loaded_as_torchscript(tmp_path: Path, trace: Path) -> None:
    import torch

    path = tmp_path / "weights.pt"
    torch.save({"weights": Payload(trace)}, path)
    with pytest.raises(ModelLoadError, match="TorchScript"):
        load_model(path, allow_pickle=True)
    assert not trace.exists()


def test_an_artifact_outside_its_bundle_is_refused(
    bundle: Callable[..., Path], payload: Path, trace: Path, tmp_path: Path
) -> None:
    for file in ("../payload.pkl", str(payload)):
        with pytest.raises(UnsafePathError, match=r"\[model\] file"):
            load_model(bundle(f'[model]\nfile = "{file}"\n'), allow_pickle=True)
    directory = bundle('[model]\nfile = "link.pkl"\n')
    (directory / "link.pkl").symlink_to(payload)
    with pytest.raises(UnsafePathError, match=r"\[model\] file"):
        load_model(directory, allow_pickle=True)
    assert not trace.exists()
