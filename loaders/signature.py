"""What a model takes and gives, as plain data: the seam between the loaders and the server.

An *input* says what one row must be, so that the server can check and prepare it on the request's own
thread. An *output* says how one row's raw result is presented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal

from loaders.packing import Packing, Packs, in_one_row, pack


class InputKind(StrEnum):
    """The four kinds of row that Jitney prepares."""

    TABULAR = "tabular"
    TEXT = "text"
    IMAGE = "image"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class TabularInput:
    """A row of numbers; the model sees a 1-D array of `dtype` and `width` numbers.

    `columns`: names in the model's order; then a row may also be an object with these keys.
    `width`: numbers per row, None for any. `allow_null`: a JSON null becomes NaN instead of an error, except in the
    columns `without_null` (by position), where the model is known to fail on one.
    `dtype`: "float32" or "float64"; "object" for estimators whose named columns hold text too.
    """

    kind: ClassVar[InputKind] = InputKind.TABULAR
    columns: tuple[str, ...] | None = None
    width: int | None = None
    allow_null: bool = False
    dtype: Literal["float32", "float64", "object"] = "float64"
    without_null: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedText:
    """One tokenised text. `ids`: token ids with the special tokens; `truncated`: the text was cut."""

    ids: tuple[int, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TextInput:
    """A string. `encode` tokenises one text and may be called from several threads at once.

    Without `encode` the model sees the string itself. `max_length`: tokens after which a text is cut.
    `pad_to_multiple_of`: the padded length of a batch is rounded up to a multiple of this many tokens.
    `packs`: how several texts of a batch share a row of the model, so that it costs about what its texts are long; None
    where each has its own.
    """

    kind: ClassVar[InputKind] = InputKind.TEXT
    encode: Callable[[str], EncodedText] | None = None
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    packs: Packs | None = None

    def packing(self, lengths: Sequence[int]) -> Packing:
        """Where the model has the texts of a batch, of such lengths in tokens, if it packs them."""
        shape = in_one_row if self.packs == Packs.ONE_ROW else pack
        return shape(lengths, self.padded_length)

    def padded_length(self, longest: int) -> int:
        """Tokens per row of a batch whose longest text has `longest` tokens; never past `max_length`."""
        multiple = self.pad_to_multiple_of or 1
        rounded = max(1, -(-longest // multiple) * multiple)
        return rounded if self.max_length is None else min(rounded, max(longest, self.max_length))


@dataclass(frozen=True, slots=True)
class ImageInput:
    """A picture; the model sees `(pixel * scale - mean) / std`, RGB, as [C, H, W] or [H, W, C].

    The picture is first resized so that its shorter side is `resize_shorter` (if given) and the centre
    `crop` = (height, width) is cut out; without these it is resized to (`height`, `width`) at once.
    `mean`, `std`: one number per channel, in units of scaled pixels.
    """

    kind: ClassVar[InputKind] = InputKind.IMAGE
    height: int
    width: int
    resize_shorter: int | None = None
    crop: tuple[int, int] | None = None
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    scale: float = 1 / 255
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class TensorInput:
    """Nested numbers of `shape` (without the batch dimension; None where a dimension may vary).

    `shape` is None when nothing is known. `dtype`: a NumPy name, e.g. "float32", "int64", "bool".
    """

    kind: ClassVar[InputKind] = InputKind.TENSOR
    shape: tuple[int | None, ...] | None = None
    dtype: str = "float32"


InputSpec = TabularInput | TextInput | ImageInput | TensorInput


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """How a row's raw result becomes a prediction.

    `task` = "classification": the raw result is one score per class, turned into the best label with its
    score, or into the `top_k` best, best first. With `softmax` the raw scores are logits.
    Otherwise the raw numbers are the prediction. `labels`: class names in the model's order.
    """

    task: Literal["classification", "regression", "embedding"] | None = None
    labels: tuple[str, ...] | None = None
    top_k: int | None = None
    softmax: bool = False
