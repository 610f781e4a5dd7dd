"""What a torch module gives, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np


def to_numpy(output: Any, torch: ModuleType) -> Any:
    """A tensor as an array of its own on the CPU; lists, tuples and dictionaries of them likewise.

    The half types become float32: NumPy has no bfloat16, and what is computed on has to be exact from here on.
    """
    # A copy, as the tensor may be a buffer that the model writes to again in the next batch.
    return of_each_tensor(output, torch, lambda tensor: np.array(readable(tensor, torch).cpu().numpy()))


def of_each_tensor(output: Any, torch: ModuleType, make: Callable[[Any], Any]) -> Any:
    """`output` with what `make` gives for each tensor in its place; keys become text, and tuples lists."""
    if isinstance(output, torch.Tensor):
        return make(output)
    if isinstance(output, Mapping):
        return {str(key): of_each_tensor(value, torch, make) for key, value in output.items()}
    if isinstance(output, list | tuple):
        return [of_each_tensor(value, torch, make) for value in output]
    return output


def readable(tensor: Any, torch: ModuleType) -> Any:
    """The tensor, on its own device, in a layout and a type that NumPy has too."""
    tensor = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
