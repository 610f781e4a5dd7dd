"""What the protocol's clients ask about a model: its metadata, and its configuration as Triton words it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.handle import ModelHandle
from service.http.v2.datatypes import Datatype
from service.http.v2.declared import DeclaredTensor, declared_inputs, declared_outputs

# "<framework>_<format>", as the protocol has it; any other format is run by Python.
_PLATFORMS = {
    "onnx": "onnxruntime_onnx",
    "torchscript": "pytorch_torchscript",
    "pt2": "pytorch_export",
    "transformers": "pytorch_transformers",
}

# *Source:* Triton's model_config.proto, where BYTES are strings.
_CONFIG_TYPE = {datatype: f"TYPE_{datatype}" for datatype in Datatype} | {Datatype.BYTES: "TYPE_STRING"}


def metadata(model: ModelHandle, versions: Sequence[str], sample: Any | None = None) -> dict[str, Any]:
    """The body of `GET /v2/models/<name>`. sample: the prediction of one row, from which the outputs are told."""
    return {
        "name": model.name,
        "versions": list(versions),
        "platform": platform(model),
        "inputs": [_metadata(tensor) for tensor in _inputs(model)],
        "outputs": [_metadata(tensor) for tensor in declared_outputs(model.output, sample)],
    }


def config(
    model: ModelHandle, *, max_batch_size: int, max_batch_latency_ms: float, sample: Any | None = None
) -> dict[str, Any]:
    """The body of `GET /v2/models/<name>/config`; `dynamic_batching` in it tells clients that rows are batched.

    `dims` leave out the dimension of the rows.
    """
    return {
        "name": model.name,
        "platform": platform(model),
        "max_batch_size": max_batch_size,
        "input": [_config(tensor) for tensor in _inputs(model)],
        "output": [_config(tensor) for tensor in declared_outputs(model.output, sample)],
        "dynamic_batching": {
            "preferred_batch_size": [max_batch_size],
            "max_queue_delay_microseconds": round(max_batch_latency_ms * 1000),
        },
    }


def platform(model: ModelHandle) -> str:
    """What runs the model, and the format of its file."""
    return _PLATFORMS.get(model.fmt, f"python_{model.fmt}")


def _inputs(model: ModelHandle) -> tuple[DeclaredTensor, ...]:
    return declared_inputs(model.input, model.metadata.get("column_types", ()))


def _metadata(tensor: DeclaredTensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def _config(tensor: DeclaredTensor) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": _CONFIG_TYPE[tensor.datatype], "dims": list(tensor.shape[1:])}
