"""What may stand in a bundle's `jitney.toml`, table by table.

The tables are strict: no unknown keys, no strings for numbers. A key that was left out stays None, so that
what the model says about itself is kept.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from loaders.names import checked_name

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def _integer_as_text(value: object) -> object:
    # A version is often written as a bare number; a bool is an integer to Python, but not a version.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _sha256(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise ValueError(f"must be 64 hexadecimal digits, not {len(value)} characters; `jitney pin` writes them")
    return value


Name = Annotated[str, AfterValidator(checked_name)]
Version = Annotated[str, AfterValidator(checked_name), BeforeValidator(_integer_as_text)]
Positive = Annotated[int, Field(ge=1)]
Pair = Annotated[list[Positive], Field(min_length=2, max_length=2)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
PerChannel = Annotated[list[Finite], Field(min_length=3, max_length=3)]
TensorDtype = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
]


class Table(BaseModel):
    """Base of the tables."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelTable(Table):
    """`[model]`: what it is called, where its artifact lies, relative to the bundle, and how torch runs it."""

    name: Name | None = None
    version: Version | None = None
    format: Annotated[str, Field(min_length=1)] | None = None
    file: Annotated[str, Field(min_length=1)] = "."
    sha256: Annotated[str, AfterValidator(_sha256)] | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    compile: bool | None = None


class TabularTable(Table):
    """`[input]` with `kind = "tabular"`."""

    kind: Literal["tabular"]
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    width: Positive | None = None
    allow_null: bool | None = None
    dtype: Literal["float32", "float64", "object"] | None = None

    @field_validator("columns")
    @classmethod
    def _unique(cls, columns: list[str] | None) -> list[str] | None:
        if columns is not None and len(set(columns)) < len(columns):
            raise ValueError("a column is named twice")
        return columns


class TextTable(Table):
    """`[input]` with `kind = "text"`; lengths in tokens."""

    kind: Literal["text"]
    max_length: Positive | None = None
    pad_to_multiple_of: Positive | None = None


class ImageTable(Table):
    """`[input]` with `kind = "image"`; sizes are [height, width] in pixels."""

    kind: Literal["image"]
    size: Pair | None = None
    resize_shorter: Positive | None = None
    crop: Pair | None = None
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    scale: Finite = 1 / 255
    mean: PerChannel = [0.0, 0.0, 0.0]
    std: PerChannel = [1.0, 1.0, 1.0]

    @field_validator("std")
    @classmethod
    def _not_zero(cls, std: list[float]) -> list[float]:
        if not all(std):
            raise ValueError("a standard deviation of 0 would divide by zero")
        return std


class TensorTable(Table):
    """`[input]` with `kind = "tensor"`; `shape` without the batch dimension, -1 where it may vary."""

    kind: Literal["tensor"]
    shape: list[int] | None = None
    dtype: TensorDtype | None = None

    @field_validator("shape")
    @classmethod
    def _dimensions(cls, shape: list[int] | None) -> list[int] | None:
        if shape is not None and any(size < 1 and size != -1 for size in shape):
            raise ValueError("a dimension is a positive number, or -1 where it may vary")
        return shape


InputTable = Annotated[TabularTable | TextTable | ImageTable | TensorTable, Field(discriminator="kind")]


INPUT_TABLES: dict[str, type[Table]] = {
    "tabular": TabularTable,
    "text": TextTable,
    "image": ImageTable,
    "tensor": TensorTable,
}


class OutputTable(Table):
    """`[output]`: `labels` are the class names in the model's order, or the name of a file with one on each line."""

    task: Literal["classification", "regression", "embedding"] | None = None
    labels: Annotated[list[str], Field(min_length=1)] | Annotated[str, Field(min_length=1)] | None = None
    top_k: Positive | None = None
    softmax: bool | None = None


class BundleTables(Table):
    """A whole `jitney.toml`."""

    model: ModelTable = ModelTable()
    input: InputTable | None = None
    output: OutputTable | None = None
