"""TorchScript archives, made by `torch.jit.trace` or `torch.jit.script`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from loaders.errors import ModelLoadError
from loaders.formats.rows import rows_by_name
from loaders.formats.torch_runtime import free, to_numpy, torch_on
from loaders.handle import ModelHandle
from loaders.signature import TensorInput

# Operators that behave differently in training, with the position of their `training` argument.
# Source: torch's native_functions.yaml.
_TRAINING_ARGUMENT = {"aten::dropout": 2, "aten::feature_dropout": 2, "aten::alpha_dropout": 2, "aten::batch_norm": 5}


class TorchScriptLoader:
    """Loads a TorchScript archive; nothing in it is unpickled, and a pickled module is refused."""

    fmt: ClassVar[str] = "torchscript"

    def load(self, path: Path, *, name: str, version: str, metadata: Mapping[str, Any] | None = None) -> ModelHandle:
        """The archive as a handle, in evaluation mode on the device that `metadata` asks for."""
        metadata = metadata or {}
        torch, device = torch_on(str(metadata.get("device", "auto")))
        try:
            module = torch.jit.load(str(path), map_location=device).eval()
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise ModelLoadError(
                f"{path.name!r} is not a TorchScript archive: save it with torch.jit.trace(...).save(), "
                f"as a pickled module or a state_dict is not loaded ({reason})"
            ) from error
        _check_arguments(module, path)
        _check_evaluation_mode(module, path)
        dtype = next((p.dtype for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), None)
        predict = _Script(torch, module, device, dtype)
        numpy_name = str(dtype).removeprefix("torch.")
        return ModelHandle(
            name=name,
            version=version,
            fmt=self.fmt,
            predict=predict,
            input=TensorInput(dtype=numpy_name if numpy_name in {"float16", "float64"} else "float32"),
            path=path,
            device=device,
            metadata=metadata,
            release=predict.close,
        )


class _Script:
    """Runs the module. `dtype`: what its weights are, None without floating-point weights."""

    def __init__(self, torch: ModuleType, module: Any, device: str, dtype: Any) -> None:
        self._torch = torch
        self._module = module
        self._device = device
        self._dtype = dtype

    def __call__(self, rows: list[Any]) -> Any:
        """One result per row; an object by output name, or `output_0`, `output_1`, ..., for several outputs."""
        with self._torch.inference_mode():
            batch = self._torch.from_numpy(np.stack(rows)).to(self._device)
            if batch.is_floating_point() and self._dtype is not None:
                batch = batch.to(self._dtype)
            output = to_numpy(self._module(batch), self._torch)
        if isinstance(output, list):
            output = {f"output_{number}": part for number, part in enumerate(output)}
        return rows_by_name(output, len(rows)) if isinstance(output, dict) else output

    def close(self) -> None:
        """Free the module and its device memory."""
        self._module = None
        free(self._torch, self._device)


def _check_arguments(module: Any, path: Path) -> None:
    arguments = module.forward.schema.arguments[1:]
    needed = [argument.name for argument in arguments if not argument.has_default_value()]
    if not arguments or len(needed) > 1:
        raise ModelLoadError(
            f"{path.name!r} takes the inputs {', '.join(needed) or '(none)'}: "
            "a TorchScript model is served with exactly one"
        )


def _check_evaluation_mode(module: Any, path: Path) -> None:
    """A module traced in training mode keeps its dropout for ever: `eval()` finds no flag to switch."""
    graph = module.inlined_graph
    for operator, position in _TRAINING_ARGUMENT.items():
        for node in graph.findAllNodes(operator):
            if list(node.inputs())[position].toIValue() is True:
                raise ModelLoadError(
                    f"{path.name!r} was traced or frozen in training mode ({operator}), so that its answers depend on "
                    "chance or on the batch: call eval() before torch.jit.trace"
                )
