"""Exported programs: `.pt2` archives, made by `torch.export.export` and `torch.export.save`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from loaders.classification import score_counts
from loaders.errors import ModelLoadError
from loaders.formats.chunks import BatchRange
from loaders.formats.pt2_archive import check_archive
from loaders.formats.torch_runtime import TRAINING_ARGUMENT, ArrayModule, declared_dtype, numpy_name, torch_on
from loaders.handle import ModelHandle
from loaders.signature import TensorInput


class Pt2Loader:
    """Loads an exported program with one input; nothing in it is unpickled without limits, and no code of it is run."""

    fmt: ClassVar[str] = "pt2"

    def load(self, path: Path, *, name: str, version: str, metadata: Mapping[str, Any] | None = None) -> ModelHandle:
        """The program as a handle, on the device that `metadata` asks for."""
        metadata = metadata or {}
        torch, device = torch_on(str(metadata.get("device", "auto")), metadata.get("instances", 1))
        check_archive(path, torch)
        # Opened here: torch warns of a path that does not end in .pt2.
        with path.open("rb") as file:
            program = torch.export.load(file)
        example = _only_input(program, path)
        _check_modes(program, path)
        wanted = declared_dtype(metadata, torch)
        if wanted not in (None, example.dtype):
            raise ModelLoadError(
                f"[model] dtype: the types of a pt2 program are fixed when it is exported, and {path.name!r} takes "
                f"{str(example.dtype).removeprefix('torch.')}: leave the key out, or export the model in that type"
            )
        rows = _batch_range(program, example, path)
        if device != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
        floating = example.dtype if example.dtype.is_floating_point else None
        predict = ArrayModule(torch, program.module(), device, floating, rows)
        return ModelHandle(
            name=name,
            version=version,
            fmt=self.fmt,
            predict=predict,
            input=TensorInput(
                shape=tuple(size if isinstance(size, int) else None for size in example.shape[1:]),
                dtype=_row_dtype(example.dtype),
            ),
            path=path,
            device=device,
            metadata={**metadata, "score_counts": score_counts(_output_shapes(program))},
            release=predict.close,
            is_thread_safe=device != "cpu",  # there a `CudaPipeline` runs it
        )


def _output_shapes(program: Any) -> list[tuple[Any, ...]]:
    """Of the outputs in their order, batch dimension included; an extent that may vary is no integer."""
    made = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return [tuple(getattr(made.get(name), "shape", ())) for name in program.graph_signature.user_outputs]


def _only_input(program: Any, path: Path) -> Any:
    """The tensor without data that stands for the one input."""
    names = program.graph_signature.user_inputs
    if len(names) != 1 or not _is_positional(program):
        raise ModelLoadError(
            f"{path.name!r} takes the inputs {', '.join(map(str, names)) or '(none)'}: a pt2 program is served with "
            "exactly one, given by position when it was exported"
        )
    example = next(node.meta["val"] for node in program.graph.nodes if node.name == names[0])
    if not hasattr(example, "shape") or not example.shape:
        raise ModelLoadError(f"{path.name!r}: its input has no batch dimension")
    return example


def _is_positional(program: Any) -> bool:
    from torch.utils import _pytree as tree

    given: bool = tree.tree_unflatten([None], program.call_spec.in_spec) == ((None,), {})
    return given


def _check_modes(program: Any, path: Path) -> None:
    """Refuse a program that was exported in training mode, or whose answer depends on earlier calls."""
    signature = program.graph_signature
    buffers = set(signature.inputs_to_buffers) - set(getattr(signature, "non_persistent_buffers", ()))
    changed = bool(signature.buffers_to_mutate)
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            continue
        position = TRAINING_ARGUMENT.get(schema.name.removesuffix("_functional"))
        if position is not None and len(node.args) > position and node.args[position] is True:
            raise ModelLoadError(
                f"{path.name!r} was exported in training mode ({schema.name}), so that its answers depend on chance or "
                "on the batch: call eval() before torch.export.export"
            )
        first = node.args[0] if node.args else None
        changed = changed or (schema.is_mutable and getattr(first, "name", None) in buffers)
    if changed:
        raise ModelLoadError(
            f"{path.name!r} keeps state between calls, which callers that share a batch would change for each other"
        )


def _batch_range(program: Any, example: Any, path: Path) -> BatchRange:
    size = example.shape[0]
    if isinstance(size, int):
        return BatchRange(size, size)
    limits = program.range_constraints.get(size.node.expr)
    if limits is None:
        raise ModelLoadError(f"{path.name!r}: its batch dimension is {size}, not a size that may be chosen freely")
    # torch writes 2 for any size that was not exported as a fixed 0 or 1, and lets 1 pass itself.
    least, most = limits.lower, limits.upper
    return BatchRange(int(least) if least > 2 else 1, int(most) if most.is_Integer else None)


def _row_dtype(dtype: Any) -> str:
    return numpy_name(dtype) if dtype.is_floating_point else str(dtype).removeprefix("torch.")
