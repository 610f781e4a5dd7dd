"""What a bundle declares wins over what a loader found out by itself, but may not contradict the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from loaders.bundle import BUNDLE_FILE
from loaders.classification import known_counts
from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, OutputSpec, TabularInput, TensorInput, TextInput
from loaders.tables import BundleTables, ImageTable, OutputTable, TabularTable, TensorTable, TextTable

Shape = tuple[int | None, ...]


def with_declared(handle: ModelHandle, tables: BundleTables) -> ModelHandle:
    """`handle` with the bundle's `[input]` and `[output]`; raises `ModelLoadError` naming a key that cannot be true."""
    if tables.input is not None:
        handle = replace(handle, input=declared_input(tables.input, handle.input))
    if tables.output is not None:
        handle = replace(handle, output=_declared_output(tables.output, handle.output, handle.metadata))
    return handle


def declared_input(table: TabularTable | TextTable | ImageTable | TensorTable, found: InputSpec) -> InputSpec:
    """What an `[input]` table says, completed by what was `found`; raises `ModelLoadError` for a contradiction."""
    if isinstance(table, TabularTable):
        declared: InputSpec = _tabular(table, found)
    elif isinstance(table, TextTable):
        declared = _text(table, found)
    elif isinstance(table, ImageTable):
        declared = image_input(table)
    else:
        declared = _tensor(table, found)
    shape, model_shape = _shape(declared), _shape(found)
    if isinstance(found, TextInput) and found.encode is not None and not isinstance(declared, TextInput):
        raise _contradiction("kind", repr(table.kind), "text that is tokenised here")
    if isinstance(declared, TextInput) and model_shape is not None:
        raise _contradiction("kind", "'text'", f"rows of shape {_shown(model_shape)}")
    if shape is not None and model_shape is not None and not _compatible(shape, model_shape):
        raise _contradiction(_shape_key(table), _shown(shape), f"rows of shape {_shown(model_shape)}")
    return declared


def _tabular(table: TabularTable, found: InputSpec) -> TabularInput:
    base = found if isinstance(found, TabularInput) else TabularInput()
    columns = tuple(table.columns) if table.columns is not None else base.columns
    width = table.width or (len(columns) if columns is not None else base.width)
    if columns is not None and width != len(columns):
        raise _contradiction("width", str(width), f"{len(columns)} columns")
    if base.columns is not None and columns != base.columns:
        # The same names in another order would mix up the columns without any error.
        raise _contradiction("columns", ", ".join(columns or ()), ", ".join(base.columns))
    dtype = table.dtype or base.dtype
    if table.dtype is None and isinstance(found, TensorInput) and found.dtype == "float32":
        dtype = "float32"
    allow_null = base.allow_null if table.allow_null is None else table.allow_null
    return TabularInput(columns=columns, width=width, allow_null=allow_null, dtype=dtype)


def _text(table: TextTable, found: InputSpec) -> TextInput:
    base = found if isinstance(found, TextInput) else TextInput()
    lengths = [length for length in (table.max_length, base.max_length) if length is not None]
    return replace(
        base,
        max_length=min(lengths, default=None),
        pad_to_multiple_of=table.pad_to_multiple_of or base.pad_to_multiple_of,
    )


def image_input(table: ImageTable) -> ImageInput:
    """The input that an `[input]` table of kind "image" declares.

    Raises `ModelLoadError` for sizes that do not fit together.
    """
    crop = table.crop or (table.size if table.resize_shorter else None)
    size = table.size or table.crop
    if size is None:
        raise ModelLoadError(f"{BUNDLE_FILE}: [input] size: needed, as [height, width], for images")
    if crop is not None and crop != size:
        raise ModelLoadError(f"{BUNDLE_FILE}: [input] crop: {crop} is not the size {size} that the model takes")
    if crop is not None and table.resize_shorter is None:
        raise ModelLoadError(f"{BUNDLE_FILE}: [input] crop: needs resize_shorter, or small pictures could not be cut")
    if crop is not None and table.resize_shorter is not None and table.resize_shorter < max(crop):
        raise ModelLoadError(f"{BUNDLE_FILE}: [input] resize_shorter: {table.resize_shorter} is less than {max(crop)}")
    return ImageInput(
        height=size[0],
        width=size[1],
        resize_shorter=table.resize_shorter,
        crop=(crop[0], crop[1]) if crop is not None else None,
        interpolation=table.interpolation,
        layout=table.layout,
        dtype=table.dtype,
        scale=table.scale,
        mean=cast("tuple[float, float, float]", tuple(table.mean)),
        std=cast("tuple[float, float, float]", tuple(table.std)),
    )


def _tensor(table: TensorTable, found: InputSpec) -> TensorInput:
    shape = None if table.shape is None else tuple(None if size == -1 else size for size in table.shape)
    dtype = table.dtype or (found.dtype if isinstance(found, TensorInput | TabularInput) else "float32")
    return TensorInput(shape=_shape(found) if shape is None else shape, dtype=dtype)


def _declared_output(table: OutputTable, found: OutputSpec, metadata: Mapping[str, Any]) -> OutputSpec:
    labels = tuple(table.labels) if isinstance(table.labels, list) else found.labels
    counts = known_counts(found, metadata)
    has = " or ".join(map(str, sorted(counts)))
    if labels is not None and counts and len(labels) not in counts:
        raise ModelLoadError(
            f"{BUNDLE_FILE}: [output] labels: the bundle says {len(labels)}, but the model has {has} classes"
        )
    top_k = table.top_k if table.top_k is not None else found.top_k
    if labels is not None and top_k is not None and top_k > len(labels):
        raise ModelLoadError(f"{BUNDLE_FILE}: [output] top_k: {top_k} is more than the {len(labels)} labels")
    if top_k is not None and counts and top_k > max(counts):
        raise ModelLoadError(f"{BUNDLE_FILE}: [output] top_k: {top_k} is more than the {has} classes of the model")
    softmax = found.softmax if table.softmax is None else table.softmax
    task: Literal["classification", "regression", "embedding"] | None = table.task or found.task
    if task is None and (labels or top_k or softmax):
        task = "classification"
    if task != "classification":
        return OutputSpec(task=task)
    return OutputSpec(task=task, labels=labels, top_k=top_k, softmax=softmax)


def _shape(spec: InputSpec) -> Shape | None:
    """The shape of one row, None where it is not known or has none."""
    if isinstance(spec, TabularInput):
        return None if spec.width is None else (spec.width,)
    if isinstance(spec, ImageInput):
        return (3, spec.height, spec.width) if spec.layout == "NCHW" else (spec.height, spec.width, 3)
    return spec.shape if isinstance(spec, TensorInput) else None


def _compatible(one: Shape, other: Shape) -> bool:
    return len(one) == len(other) and all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _shape_key(table: TabularTable | TextTable | ImageTable | TensorTable) -> str:
    if isinstance(table, TabularTable):
        return "width" if table.width is not None else "columns"
    return "size" if isinstance(table, ImageTable) else "shape"


def _shown(shape: Shape) -> str:
    return "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"


def _contradiction(key: str, declared: str, taken: str) -> ModelLoadError:
    return ModelLoadError(f"{BUNDLE_FILE}: [input] {key}: the bundle says {declared}, but the model takes {taken}")
