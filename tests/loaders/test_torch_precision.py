"""Reduced precision and compilation, for the formats that run on torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loaders import BundleError, ModelHandle, ModelLoadError, TensorInput, TextInput, load_model
from loaders.formats.torch_outputs import to_numpy
from service.outputs import present

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
HALF = ["bfloat16", "float16"]
# What a half type leaves of a number between 0 and 1 after two small layers.
TOLERANCE = {"bfloat16": 0.05, "float16": 0.01}


def encode(handle: ModelHandle, *texts: str) -> list[Any]:
    assert isinstance(handle.input, TextInput)
    assert handle.input.encode is not None
    return [handle.input.encode(text) for text in texts]


def weights_of(handle: ModelHandle) -> set[torch.dtype]:
    model: Any = getattr(handle.predict, "_model", None) or handle.predict._module  # type: ignore[attr-defined]
    return {parameter.dtype for parameter in model.parameters()}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("which", ["sentiment", "embedder"])
def test_texts_in_half_precision_get_nearly_the_same_float32_numbers(
    bundle: Callable[..., Path], request: pytest.FixtureRequest, dtype: str, which: str
) -> None:
    source: Path = request.getfixturevalue(which)
    whole = load_model(source)
    half = load_model(bundle(f'[model]\nfile = "{which}"\ndtype = "{dtype}"\n', source))
    assert weights_of(whole) == {torch.float32}
    assert weights_of(half) == {getattr(torch, dtype)}
    texts = encode(whole, "good film", "a very very good film not bad", "")
    exact, rounded = np.stack(whole.predict_batch(texts)), np.stack(half.predict_batch(texts))
    assert rounded.dtype == np.float32
    scale = np.abs(exact).max()
    np.testing.assert_allclose(rounded / scale, exact / scale, atol=TOLERANCE[dtype])
    assert not np.array_equal(rounded, exact), "the numbers must really have been rounded"
    for row in rounded:
        present(half.output, row)


@pytest.mark.parametrize("dtype", HALF)
def test_an_archive_in_half_precision_gets_nearly_the_same_float32_numbers(
    bundle: Callable[..., Path], traced: Path, dtype: str
) -> None:
    whole = load_model(traced)
    half = load_model(bundle(f'[model]\nfile = "net.pt"\ndtype = "{dtype}"\n', traced))
    assert weights_of(half) == {getattr(torch, dtype)}
    # A number that float16 cannot hold must be refused at the door; bfloat16 reaches as far as float32.
    assert half.input == TensorInput(dtype="float32" if dtype == "bfloat16" else "float16")
    rows = list(np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32))
    exact, rounded = np.stack(whole.predict_batch(rows)), np.stack(half.predict_batch(rows))
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded, exact, atol=TOLERANCE[dtype])
    assert not np.array_equal(rounded, exact)


def test_rows_are_cast_also_where_an_archive_has_no_weights(bundle: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "flat.pt"
    torch.jit.trace(torch.nn.Flatten(), torch.ones(2, 2, 2)).save(str(path))
    handle = load_model(bundle('[model]\nfile = "flat.pt"\ndtype = "bfloat16"\n', path))
    (result,) = handle.predict_batch([np.full((2, 2), 1.001, np.float32)])
    assert result.tolist() == [1.0] * 4


def test_float32_is_served_from_an_archive_that_was_saved_in_half_precision(
    bundle: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "half.pt"
    example = torch.ones(2, 3, dtype=torch.bfloat16)
    torch.jit.trace(torch.nn.Linear(3, 2).to(torch.bfloat16).eval(), example).save(str(path))
    handle = load_model(bundle('[model]\nfile = "half.pt"\ndtype = "float32"\n', path))
    assert weights_of(handle) == {torch.float32}
    assert len(handle.predict_batch([np.ones(3, np.float32)])) == 1


@pytest.mark.parametrize("fmt", ["digits_joblib", "digits_onnx"])
def test_a_type_for_a_format_that_has_its_own_is_refused(
    bundle: Callable[..., Path], request: pytest.FixtureRequest, fmt: str
) -> None:
    path: Path = request.getfixturevalue(fmt)
    with pytest.raises(BundleError, match=r"\[model\] dtype: only for torch formats"):
        load_model(bundle(f'[model]\nfile = "{path.name}"\ndtype = "bfloat16"\n', path), allow_pickle=True)


@pytest.mark.parametrize("fmt", ["digits_joblib", "digits_onnx", "traced", "exported"])
def test_compilation_of_a_format_without_python_code_is_refused(
    bundle: Callable[..., Path], request: pytest.FixtureRequest, fmt: str
) -> None:
    path: Path = request.getfixturevalue(fmt)
    with pytest.raises(BundleError, match=r"\[model\] compile: only for the transformers format"):
        load_model(bundle(f'[model]\nfile = "{path.name}"\ncompile = true\n', path), allow_pickle=True)
    assert load_model(bundle(f'[model]\nfile = "{path.name}"\ncompile = false\n'), allow_pickle=True)


@pytest.mark.parametrize("value", ['"half"', '"int8"', "16"])
def test_an_unknown_type_is_told_with_the_key(bundle: Callable[..., Path], traced: Path, value: str) -> None:
    with pytest.raises(BundleError, match=r"\[model\] dtype: .*float32, bfloat16 or float16"):
        load_model(bundle(f'[model]\nfile = "net.pt"\ndtype = {value}\n', traced))


def test_a_compiled_text_model_answers_as_the_plain_one_at_every_size(
    bundle: Callable[..., Path], sentiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def traced_only(model: Any, **options: Any) -> Any:
        """The real tracing, without the compiler behind it, which takes most of the time and a C++ toolchain."""
        asked.append(options)
        return compiled(model, backend="eager", **options)

    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", functools.wraps(compiled)(traced_only))
    plain = load_model(sentiment)
    handle = load_model(bundle('[model]\nfile = "sentiment"\ncompile = true\n', sentiment))
    assert asked == [{"dynamic": True}], "sizes must not be compiled one by one"
    for texts in (["good"], ["good film", "bad"], ["a very good film", "not bad", ""]):
        rows = encode(plain, *texts)
        np.testing.assert_allclose(handle.predict_batch(rows), plain.predict_batch(rows), atol=1e-5)
    handle.close()
    torch.compiler.reset()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_in_a_half_type_become_float32(dtype: torch.dtype) -> None:
    result = to_numpy(torch.tensor([1.5], dtype=dtype), torch)
    assert (result.dtype, result.tolist()) == (np.float32, [1.5])


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", ["float32", *HALF])
@pytest.mark.parametrize("which", ["sentiment", "traced"])
def test_a_gpu_gives_the_cpus_numbers_in_every_type(
    bundle: Callable[..., Path], request: pytest.FixtureRequest, dtype: str, which: str
) -> None:
    source: Path = request.getfixturevalue(which)
    directory = bundle(f'[model]\nfile = "{source.name}"\ndtype = "{dtype}"\n', source)
    on_gpu, on_cpu = load_model(directory, device="cuda"), load_model(source, device="cpu")
    assert on_gpu.device == "cuda:0"
    rows: list[Any] = encode(on_cpu, "good", "not bad") if which == "sentiment" else [np.ones(4, np.float32)] * 3
    exact, given = np.stack(on_cpu.predict_batch(rows)), np.stack(on_gpu.predict_batch(rows))
    assert given.dtype == np.float32
    scale = np.abs(exact).max()
    np.testing.assert_allclose(given / scale, exact / scale, atol=TOLERANCE.get(dtype, 1e-3))


@pytest.mark.gpu
@needs_cuda
def test_an_exported_program_moves_to_the_gpu(exported: Path) -> None:
    on_gpu, on_cpu = load_model(exported, device="cuda"), load_model(exported, device="cpu")
    rows = [np.ones(4, np.float32)] * 3
    np.testing.assert_allclose(on_gpu.predict_batch(rows), on_cpu.predict_batch(rows), atol=1e-4)


def test_an_unfit_type_names_the_key_and_the_file(bundle: Callable[..., Path], exported: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"\[model\] dtype.*'net.pt2'"):
        load_model(bundle('[model]\nfile = "net.pt2"\ndtype = "float16"\n', exported))
