"""What rows must have in common to share a batch of the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from loaders.handle import ModelHandle
from loaders.signature import TextInput
from service.batching.policy import PackedShape
from service.batching.tickets import LaneName


# A named tuple, because its hash is worked out for each request, and this one's in C.
class LaneKey(NamedTuple):
    """Rows with equal keys may share a batch: same model, same parameters, same shape.

    A parameter is (name, type, value): 1, 1.0 and true are equal to Python, but not to every model.
    """

    model: ModelHandle
    parameters: tuple[tuple[str, str, Any], ...]
    shape: tuple[Any, ...]


def plain_lane(model: ModelHandle) -> LaneName:
    """The lane of rows whose callers give no parameters."""
    return LaneName(LaneKey(model, (), ()))


def is_pipelined(key: LaneKey) -> bool:
    """Whether batches of the model run one after the other, whichever worker thread has them."""
    return key.model.is_pipelined


def padded_length(key: LaneKey, longest: int) -> int:
    """To what length the model pads a batch whose longest row has `longest` tokens."""
    spec = key.model.input
    return spec.padded_length(longest) if isinstance(spec, TextInput) else longest


def packing(key: LaneKey) -> PackedShape | None:
    """In how many rows, and how long ones, the model computes a batch of texts, if short ones share a row."""
    spec = key.model.input
    if not isinstance(spec, TextInput) or spec.packs is None:
        return None

    def shape(lengths: Sequence[int]) -> tuple[int, int]:
        packed = spec.packing(lengths)
        return packed.rows, packed.length

    return shape
