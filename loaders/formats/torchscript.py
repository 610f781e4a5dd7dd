"""TorchScript archives, made by `torch.jit.trace` or `torch.jit.script`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from loaders.errors import ModelLoadError
from loaders.formats.torch_runtime import TRAINING_ARGUMENT, ArrayModule, declared_dtype, numpy_name, torch_on
from loaders.handle import ModelHandle
from loaders.signature import TensorInput


class TorchScriptLoader:
    """Loads a TorchScript archive; nothing in it is unpickled, and a pickled module is refused."""

    fmt: ClassVar[str] = "torchscript"

    def load(self, path: Path, *, name: str, version: str, metadata: Mapping[str, Any] | None = None) -> ModelHandle:
        """The archive as a handle, in evaluation mode on the device that `metadata` asks for."""
        metadata = metadata or {}
        torch, device = torch_on(str(metadata.get("device", "auto")), metadata.get("instances", 1))
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
        wanted = declared_dtype(metadata, torch)
        if wanted is not None:
            module = module.to(wanted)
        weights = (p.dtype for p in (*module.parameters(), *module.buffers()) if p.is_floating_point())
        dtype = wanted or next(weights, None)
        predict = ArrayModule(torch, module, device, dtype)
        return ModelHandle(
            name=name,
            version=version,
            fmt=self.fmt,
            predict=predict,
            input=TensorInput(dtype=numpy_name(dtype)),
            path=path,
            device=device,
            metadata=metadata,
            release=predict.close,
            is_thread_safe=device != "cpu",  # there a `CudaPipeline` runs it
        )


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
    for operator, position in TRAINING_ARGUMENT.items():
        for node in graph.findAllNodes(operator):
            if list(node.inputs())[position].toIValue() is True:
                raise ModelLoadError(
                    f"{path.name!r} was traced or frozen in training mode ({operator}), so that its answers depend on "
                    "chance or on the batch: call eval() before torch.jit.trace"
                )
