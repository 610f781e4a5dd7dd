"""An instance of a request that a model can take, made from what is known of its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.signature import ImageInput, InputSpec, TabularInput, TextInput

# Where a row may be of any width.
_FREE_WIDTH = 3

# A grey picture of one pixel.
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNoAAAAggCB2kUIOwAAAABJRU5ErkJggg=="

_OF_COLUMN_TYPE: dict[str | None, Any] = {"boolean": False, "text": "a text"}


def example_instance(spec: InputSpec, column_types: Sequence[str | None] = ()) -> Any:
    """One instance of a request, of JSON types: zeros of the right shape, a sentence, or a tiny picture.

    column_types: see `service.inputs.prepare`.
    """
    if isinstance(spec, TextInput):
        return "a text"
    if isinstance(spec, ImageInput):
        return {"b64": _PNG}
    if isinstance(spec, TabularInput) and spec.columns is not None:
        types = column_types or (None,) * len(spec.columns)
        return {name: _OF_COLUMN_TYPE.get(kind, 0) for name, kind in zip(spec.columns, types, strict=True)}
    instance: Any = _zero(spec)
    for extent in reversed(_shape(spec)):
        instance = [instance] * extent
    return instance


def example_in_python(spec: InputSpec, column_types: Sequence[str | None] = ()) -> str:
    """An expression for the same instance that stays short where the instance is long; for rows and tensors."""
    if isinstance(spec, TabularInput) and spec.columns is not None:
        if set(column_types) & _OF_COLUMN_TYPE.keys():
            return repr(example_instance(spec, column_types))
        return f"dict.fromkeys({list(spec.columns)!r}, 0)"
    text = repr(_zero(spec))
    for extent in reversed(_shape(spec)):
        text = f"[{text}] * {extent}"
    return text


def _shape(spec: InputSpec) -> tuple[int, ...]:
    if isinstance(spec, TabularInput):
        return (spec.width or _FREE_WIDTH,)
    shape = getattr(spec, "shape", None)
    return (_FREE_WIDTH,) if shape is None else tuple(extent or 1 for extent in shape)


def _zero(spec: InputSpec) -> int | bool:
    return False if getattr(spec, "dtype", "") == "bool" else 0
