"""What the loaders that run on torch have in common."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from loaders.dependencies import require
from loaders.devices import compute_threads, resolve_device


def torch_on(requested: str) -> tuple[ModuleType, str]:
    """The torch module and the device, "cpu" or "cuda:N", for the requested one."""
    torch = require("torch", extra="torch")
    device = resolve_device(requested, torch.cuda.device_count)
    # torch counts the machine's cores, also where a container's quota or its CPU set allows fewer.
    if torch.get_num_threads() > compute_threads():
        torch.set_num_threads(compute_threads())
    return torch, device


def to_numpy(output: Any, torch: ModuleType) -> Any:
    """A tensor as an array of its own on the CPU; lists, tuples and dictionaries of them likewise.

    bfloat16, which NumPy does not have, becomes float32.
    """
    if isinstance(output, torch.Tensor):
        tensor = output.detach().to_dense() if output.layout is not torch.strided else output.detach()
        if tensor.dtype is torch.bfloat16:
            tensor = tensor.float()
        # A copy, as the tensor may be a buffer that the model writes to again in the next batch.
        return np.array(tensor.cpu().numpy())
    if isinstance(output, Mapping):
        return {str(key): to_numpy(value, torch) for key, value in output.items()}
    if isinstance(output, list | tuple):
        return [to_numpy(value, torch) for value in output]
    return output


def free(torch: ModuleType, device: str) -> None:
    """Give the memory that torch keeps for a dropped model back to the device."""
    if device != "cpu":
        torch.cuda.empty_cache()
