"""ONNX models, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, cast

import numpy as np

from loaders.classification import classification, is_asked_for, score_counts
from loaders.dependencies import require
from loaders.devices import compute_threads, cpu_count, cuda_index
from loaders.errors import DeviceError, ModelLoadError
from loaders.formats.chunks import BatchRange
from loaders.formats.onnx_classes import ScoredClasses, scored_classes
from loaders.formats.onnx_columns import OnnxColumns, are_columns, columns_input
from loaders.formats.onnx_external import external_files
from loaders.formats.onnx_outputs import AskedOutputs
from loaders.formats.onnx_side_by_side import SessionSideBySide
from loaders.formats.onnx_text import TOKEN_INPUTS, OnnxTexts, onnx_texts
from loaders.formats.onnx_turns import SessionInTurns
from loaders.handle import ModelHandle
from loaders.signature import InputSpec, OutputSpec, TabularInput, TensorInput, TextInput

_NUMPY_NAME = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    "tensor(string)": "str",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_CUDA_PROVIDER = "CUDAExecutionProvider"


class OnnxLoader:
    """Loads an ONNX model; external weights must lie beside it."""

    fmt: ClassVar[str] = "onnx"

    def load(self, path: Path, *, name: str, version: str, metadata: Mapping[str, Any] | None = None) -> ModelHandle:
        """The model as a handle, in a session with an explicit number of threads."""
        metadata = metadata or {}
        external_files(path)  # onnxruntime would open whatever the model names
        onnxruntime = require("onnxruntime", extra="onnx")
        instances = metadata.get("instances", 1)
        requested = str(metadata.get("device", "auto"))
        session, device = _shared_session(onnxruntime, path, requested, instances, cpu_count())
        inputs = session.get_inputs()
        for value in inputs:
            if value.type not in _NUMPY_NAME:
                raise ModelLoadError(
                    f"{path.name!r}: the input {value.name!r} has the type {value.type}, not a tensor's"
                )
        predict: _Arrays | OnnxColumns | OnnxTexts
        spec: InputSpec
        told: dict[str, Any] = {}
        scored: ScoredClasses | None = None
        tokenizer = path.parent / "tokenizer.json"
        if {value.name for value in inputs} <= TOKEN_INPUTS and inputs and tokenizer.is_file():
            predict, spec = onnx_texts(session, tokenizer, metadata)
        elif are_columns(inputs):
            spec, told = columns_input(inputs)
            scored = _scored(session, path, metadata)
            predict = OnnxColumns(session, AskedOutputs(session, scored))
        elif len(inputs) == 1:
            # The specification first: it refuses what the other could not be made for.
            spec = _input_spec(inputs[0], path)
            scored = _scored(session, path, metadata)
            predict = _Arrays(session, AskedOutputs(session, scored))
        else:
            raise ModelLoadError(
                f"{path.name!r} takes {len(inputs)} inputs ({', '.join(value.name for value in inputs)}); served are "
                "models with one input, with one of shape [batch, 1] for each column of a table, or with "
                f"{', '.join(sorted(TOKEN_INPUTS))} and a tokenizer.json beside them"
            )
        return ModelHandle(
            name=name,
            version=version,
            fmt=self.fmt,
            predict=predict,
            input=spec,
            output=OutputSpec() if scored is None else classification(scored.classes),
            path=path,
            device=device,
            metadata={**metadata, **told, **_told(session.get_outputs(), scored)},
            release=predict.close,
            is_thread_safe=instances > 1 or device != "cpu",
        )


def _scored(session: Any, path: Path, metadata: Mapping[str, Any]) -> ScoredClasses | None:
    return scored_classes(session.get_outputs(), path) if is_asked_for(metadata) else None


def _told(outputs: Iterable[Any], scored: ScoredClasses | None) -> dict[str, Any]:
    """What the file itself says of its outputs, beside what the bundle does."""
    if scored is not None:
        return {"classes": scored.classes}
    return {"score_counts": score_counts(value.shape for value in outputs)}


class _Arrays:
    """Runs a session with one input."""

    def __init__(self, session: Any, outputs: AskedOutputs) -> None:
        self._session: Any = session
        self._outputs = outputs
        self._input = session.get_inputs()[0].name
        self._shape = session.get_inputs()[0].shape
        name = _NUMPY_NAME[session.get_inputs()[0].type]
        self._takes_text = name == "str"
        self._dtype = np.dtype(object if self._takes_text else name)
        fixed = self._shape[0]
        self._range = BatchRange(fixed, fixed) if isinstance(fixed, int) else BatchRange()

    def __call__(self, rows: list[Any]) -> Any:
        """One result per row; an object by output name for several outputs."""
        batch = np.stack([np.asarray(row) for row in rows]).astype(self._dtype, copy=False)
        if self._takes_text:
            # One text per row, whether the model wants them as [N] or as [N, 1].
            batch = batch.reshape(len(rows), *[1] * (len(self._shape) - 1))
        chunks = [self._session.run(self._outputs.names, {self._input: chunk}) for chunk in self._range.split(batch)]
        joined = [self._range.join(parts, len(rows)) for parts in zip(*chunks, strict=True)]
        return self._outputs.rows(joined, len(rows))

    def close(self) -> None:
        """Free the session and its device memory."""
        self._session = None


def _input_spec(value: Any, path: Path) -> InputSpec:
    """What one row is: the declared shape without its first dimension, which is the batch's."""
    dtype = _NUMPY_NAME[value.type]
    if not value.shape:
        raise ModelLoadError(f"{path.name!r}: the input {value.name!r} has no batch dimension")
    row = tuple(size if isinstance(size, int) else None for size in value.shape[1:])
    if dtype == "str":
        if any(size not in {1, None} for size in row):
            raise ModelLoadError(f"{path.name!r}: the input {value.name!r} takes several texts per row; served is one")
        return TextInput()
    if len(row) == 1 and dtype in {"float32", "float64"}:
        return TabularInput(width=row[0], dtype=cast('Literal["float32", "float64"]', dtype))
    # Whole numbers stay a tensor: its dtype refuses 1.5 at the door, where a cast here would cut it to 1.
    return TensorInput(shape=row, dtype=dtype)


def _shared_session(onnxruntime: ModuleType, path: Path, requested: str, instances: int, cpus: int) -> tuple[Any, str]:
    """A session for so many threads that run batches, and the device that it is on."""
    share = compute_threads(instances=instances)
    together = min(share * instances, cpus)
    session, device = _session(onnxruntime, path, requested, together)
    if device != "cpu":
        return SessionInTurns(session), device
    if together <= share:
        return session, device
    # A session with one thread has none of its own: it runs on the callers', and any number of them may share it.
    count = 1 if share == 1 else instances
    beside = [_session(onnxruntime, path, device, share)[0] for _ in range(count)]
    return SessionSideBySide(session, beside * (instances // count)), device


def _session(onnxruntime: ModuleType, path: Path, requested: str, threads: int) -> tuple[Any, str]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait by spinning take the CPU from those that parse and decode the next requests.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Plans are kept for every shape ever seen, and batches come in ever-new shapes.
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    index = cuda_index(requested)
    wants_cuda = requested.startswith("cuda")
    providers: list[Any] = ["CPUExecutionProvider"]
    if requested != "cpu" and _CUDA_PROVIDER in onnxruntime.get_available_providers():
        providers.insert(0, (_CUDA_PROVIDER, {"device_id": index}))
    elif wants_cuda:
        raise DeviceError(
            f"DEVICE={requested} was asked for, but this onnxruntime has no CUDA provider: "
            "pip install 'jitney[onnx-gpu]' in place of 'jitney[onnx]'"
        )
    session = onnxruntime.InferenceSession(str(path), sess_options=options, providers=providers)
    # Only the finished session tells: a provider that cannot start is dropped without an error.
    on_cuda = _CUDA_PROVIDER in session.get_providers()
    if wants_cuda and not on_cuda:
        raise DeviceError(f"DEVICE={requested} was asked for, but onnxruntime could not start its CUDA provider there")
    return session, f"cuda:{index}" if on_cuda else "cpu"
