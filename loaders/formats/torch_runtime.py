"""What the loaders that run on torch have in common."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loaders.dependencies import require
from loaders.devices import compute_threads, resolve_device
from loaders.formats.chunks import BatchRange
from loaders.formats.cuda_pipeline import CudaPipeline
from loaders.formats.rows import rows_by_name
from loaders.formats.torch_outputs import to_numpy

# Operators that behave differently in training, with the position of their `training` argument.
# Source: torch's native_functions.yaml.
TRAINING_ARGUMENT = {
    "aten::dropout": 2,
    "aten::feature_dropout": 2,
    "aten::alpha_dropout": 2,
    "aten::native_dropout": 2,
    "aten::batch_norm": 5,
    "aten::native_batch_norm": 5,
    "aten::_native_batch_norm_legit": 5,
}


def torch_on(requested: str, instances: int = 1) -> tuple[ModuleType, str]:
    """The torch module and the device, "cpu" or "cuda:N", for the requested one; instances: see `compute_threads`."""
    torch = require("torch", extra="torch")
    device = resolve_device(requested, torch.cuda.device_count)
    # torch counts the machine's cores, also where a container's quota or its CPU set allows fewer. The number holds for
    # every thread that has not computed yet.
    threads = compute_threads(instances=instances)
    if torch.get_num_threads() > threads:
        torch.set_num_threads(threads)
    return torch, device


def declared_dtype(metadata: Mapping[str, Any], torch: ModuleType) -> Any:
    """The torch type that the bundle's `[model] dtype` names, None where it names none."""
    name = metadata.get("model", {}).get("dtype")
    return None if name is None else getattr(torch, name)


def numpy_name(dtype: Any) -> str:
    """The type that a row has for weights of `dtype`: NumPy has no bfloat16, and None stands for no weights at all."""
    name = str(dtype).removeprefix("torch.")
    return name if name in {"float16", "float64"} else "float32"


class Run(Protocol):
    """Calls `compute` with the arrays as tensors on the device, and gives what comes of it as `to_numpy` does."""

    def __call__(self, compute: Callable[..., Any], *arrays: NDArray[Any]) -> Any: ...


def run_on(torch: ModuleType, device: str) -> Run:
    """What runs a module on the device; on a card for several threads at once, elsewhere for one at a time."""
    return partial(_run_here, torch) if device == "cpu" else CudaPipeline(torch, device)


def _run_here(torch: ModuleType, compute: Callable[..., Any], *arrays: NDArray[Any]) -> Any:
    with torch.inference_mode():
        return to_numpy(compute(*map(torch.from_numpy, arrays)), torch)


def free(torch: ModuleType, device: str) -> None:
    """Give the memory of a model that has just been dropped back, and what torch keeps of it on the device."""
    # Programs of torch hold themselves in circles, which nothing else would undo for a long while.
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


class ArrayModule:
    """Runs a module with one input on stacked arrays.

    `dtype`: what floating-point rows are cast to, None to leave them. `rows`: how many one call takes.
    """

    def __init__(self, torch: ModuleType, module: Any, device: str, dtype: Any, rows: BatchRange | None = None) -> None:
        self._torch = torch
        self._module = module
        self._device = device
        self._run_on = run_on(torch, device)
        self._dtype = dtype
        self._range = rows or BatchRange()

    def __call__(self, rows: list[Any]) -> Any:
        """One result per row; an object by output name, or `output_0`, `output_1`, ..., for several outputs.

        An output inside another is named after both, as in `heads_0`.
        """
        parts = [self._run(chunk) for chunk in self._range.split(np.stack(rows))]
        if not isinstance(parts[0], dict):
            return self._range.join(parts, len(rows))
        joined = {name: self._range.join([part[name] for part in parts], len(rows)) for name in parts[0]}
        return rows_by_name(joined, len(rows))

    def close(self) -> None:
        """Free the module and its device memory."""
        self._module = None
        free(self._torch, self._device)

    def _run(self, batch: NDArray[Any]) -> Any:
        output = self._run_on(self._compute, batch)
        return dict(_by_name(output, "")) if isinstance(output, dict | list) else output

    def _compute(self, tensor: Any) -> Any:
        is_cast = self._dtype is not None and tensor.is_floating_point()
        return self._module(tensor.to(self._dtype) if is_cast else tensor)


def _by_name(output: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every array of a nested output with a name of its own: only an array has one result per row."""
    if isinstance(output, dict):
        for key, part in output.items():
            yield from _by_name(part, f"{name}_{key}" if name else key)
    elif isinstance(output, list):
        for number, part in enumerate(output):
            yield from _by_name(part, f"{name or 'output'}_{number}")
    else:
        yield name, output
