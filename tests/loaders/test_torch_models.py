"""TorchScript archives: outputs, modes and inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loaders import DeviceError, ImageInput, MissingDependencyError, ModelLoadError, TensorInput, load_model
from loaders.formats.torch_outputs import to_numpy
from loaders.formats.torch_runtime import free, torch_on


def traced(path: Path, module: Any, *example: torch.Tensor) -> Path:
    torch.jit.trace(module, example or torch.ones(2, 3), check_trace=False, strict=False).save(str(path))
    return path


def scripted(path: Path, module: Any) -> Path:
    torch.jit.script(module).save(str(path))
    return path


class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"twice": x * 2, "sum": x.sum(dim=1)}


class Pair(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.sum(dim=1)


class Two(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Nothing(torch.nn.Module):
    def forward(self) -> torch.Tensor:
        return torch.ones(1)


class Total(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x.sum()


class Stateful(torch.nn.Module):
    """Answers with a buffer that it writes to again in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.memory.copy_(x)
        return self.memory


ROWS = [np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)]


def test_a_dictionary_of_outputs_becomes_one_object_per_row(tmp_path: Path) -> None:
    first, second = load_model(scripted(tmp_path / "m.pt", Named())).predict_batch(ROWS)
    assert (first["twice"].tolist(), first["sum"]) == ([2, 4, 6], 6)
    assert (second["twice"].tolist(), second["sum"]) == ([8, 10, 12], 15)


def test_a_tuple_of_outputs_becomes_numbered_names(tmp_path: Path) -> None:
    first, second = load_model(traced(tmp_path / "m.torchscript", Pair())).predict_batch(ROWS)
    assert (first["output_0"].tolist(), second["output_1"]) == ([2, 4, 6], 15)


def test_an_output_without_rows_is_not_spread_over_the_callers(tmp_path: Path) -> None:
    result: Any = load_model(traced(tmp_path / "m.pt", Total())).predict_batch(ROWS)
    assert np.ndim(result) == 0


def test_results_are_not_the_models_own_buffer(tmp_path: Path) -> None:
    handle = load_model(scripted(tmp_path / "m.pt", Stateful()))
    before = handle.predict_batch(ROWS)
    handle.predict_batch(ROWS[::-1])
    assert [row.tolist() for row in before] == [[1, 2, 3], [4, 5, 6]]


def test_a_module_scripted_in_training_mode_is_switched_to_evaluation(tmp_path: Path) -> None:
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)).train()
    handle = load_model(scripted(tmp_path / "m.pt", network))
    (alone,) = handle.predict_batch(ROWS[:1])
    together = handle.predict_batch(ROWS)
    np.testing.assert_allclose(alone, together[0], atol=1e-5)
    np.testing.assert_allclose(alone, handle.predict_batch(ROWS[:1])[0])


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("layer", [torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)])
def test_a_module_traced_in_training_mode_is_refused(tmp_path: Path, layer: torch.nn.Module) -> None:
    with pytest.raises(ModelLoadError, match="training mode"):
        load_model(traced(tmp_path / "m.pt", layer.train()))


@pytest.mark.parametrize(("module", "shown"), [(Two(), "x, y"), (Nothing(), "none")])
def test_a_module_with_another_number_of_inputs_is_refused(tmp_path: Path, module: Any, shown: str) -> None:
    with pytest.raises(ModelLoadError, match=shown):
        load_model(scripted(tmp_path / "m.pt", module))


@pytest.mark.parametrize(("dtype", "name"), [(torch.float64, "float64"), (torch.bfloat16, "float32")])
def test_rows_are_cast_to_the_type_of_the_weights(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    module = torch.nn.Linear(3, 2).to(dtype).eval()
    handle = load_model(traced(tmp_path / "m.pt", module, torch.ones(2, 3, dtype=dtype)))
    assert handle.input == TensorInput(dtype=name)
    results = handle.predict_batch([row.astype(np.float64) for row in ROWS])
    expected = module(torch.tensor(np.stack(ROWS)).to(dtype)).detach().to(torch.float64)
    np.testing.assert_allclose(np.stack(results), expected, rtol=1e-6)


def test_a_bundle_says_what_the_archive_cannot(tmp_path: Path, bundle: Callable[..., Path]) -> None:
    path = traced(tmp_path / "m.pt", torch.nn.Flatten(), torch.ones(2, 3, 4, 6))
    toml = '[model]\nfile = "m.pt"\n[input]\nkind = "image"\nsize = [4, 6]\n'
    handle = load_model(bundle(toml, path))
    assert handle.input == ImageInput(height=4, width=6)
    assert handle.predict_batch([np.ones((3, 4, 6), np.float32)])[0].shape == (72,)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_an_error(traced: Path) -> None:
    with pytest.raises(DeviceError, match="DEVICE=cuda"):
        load_model(traced, device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_results_are_arrays_on_the_cpu(traced: Path) -> None:
    on_gpu, on_cpu = load_model(traced, device="cuda"), load_model(traced, device="cpu")
    assert on_gpu.device == "cuda:0"
    rows = [np.ones(4, np.float32)]
    np.testing.assert_allclose(on_gpu.predict_batch(rows), on_cpu.predict_batch(rows), atol=1e-4)


def test_a_missing_torch_is_answered_with_the_extra(traced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"jitney\[torch\]"):
        load_model(traced)


def test_torch_gets_no_more_threads_than_there_are_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        torch_on("cpu")
        assert torch.get_num_threads() == 1
        monkeypatch.delenv("OMP_NUM_THREADS")
        torch_on("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_every_kind_of_output_becomes_arrays() -> None:
    sparse = torch.eye(2).to_sparse()
    given = to_numpy({"a": [torch.ones(1, dtype=torch.bfloat16), "text"], 2: sparse}, torch)
    assert given["a"][0].dtype == np.float32
    assert given["a"][1] == "text"
    assert given["2"].tolist() == [[1, 0], [0, 1]]


def test_memory_is_given_back_on_a_gpu_only() -> None:
    calls: list[str] = []
    cuda = type("Cuda", (), {"empty_cache": lambda: calls.append("emptied")})
    module: Any = type("Torch", (), {"cuda": cuda})
    free(module, "cpu")
    assert calls == []
    free(module, "cuda:0")
    assert calls == ["emptied"]
