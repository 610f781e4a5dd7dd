"""An instance of a request that a model can take, made from what is known of its input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from loaders.column_values import column_value
from loaders.signature import ImageInput, InputSpec, TabularInput, TensorInput, TextInput

# Where a row may be of any width.
_FREE_WIDTH = 3

# A grey picture of one pixel.
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNoAAAAggCB2kUIOwAAAABJRU5ErkJggg=="


def example_instance(
    spec: InputSpec, column_types: Sequence[str | None] = (), column_examples: Sequence[Any] = ()
) -> Any:
    """One instance of a request, of JSON types: zeros of the right shape, a sentence, or a tiny picture.

    column_types: see `service.inputs.prepare`. column_examples: a value that the model is known to take in each column,
    None where none is known; empty when none is known of any.
    """
    if isinstance(spec, TextInput):
        return "a text"
    if isinstance(spec, ImageInput):
        return {"b64": _PNG}
    if isinstance(spec, TabularInput) and spec.columns is not None:
        known = zip_longest(spec.columns, column_types, column_examples)
        return {name: column_value(kind, value) for name, kind, value in known}
    instance: Any = _zero(spec)
    for extent in reversed(_shape(spec)):
        instance = [instance] * extent
    return instance


def example_in_python(
    spec: InputSpec, column_types: Sequence[str | None] = (), column_examples: Sequence[Any] = ()
) -> str:
    """An expression for the same instance that stays short where the instance is long; for rows and tensors."""
    if isinstance(spec, TabularInput) and spec.columns is not None:
        instance = example_instance(spec, column_types, column_examples)
        if any(type(value) is not int or value for value in instance.values()):
            return repr(instance)
        return f"dict.fromkeys({list(spec.columns)!r}, 0)"
    text = repr(_zero(spec))
    for extent in reversed(_shape(spec)):
        text = f"[{text}] * {extent}"
    return text


def is_known(spec: InputSpec) -> bool:
    """Whether enough is known of the input for the example to be more than a guess of its shape."""
    if isinstance(spec, TabularInput):
        return spec.columns is not None or spec.width is not None
    return not isinstance(spec, TensorInput) or spec.shape is not None


def _shape(spec: InputSpec) -> tuple[int, ...]:
    if isinstance(spec, TabularInput):
        return (spec.width or _FREE_WIDTH,)
    shape = getattr(spec, "shape", None)
    return (_FREE_WIDTH,) if shape is None else tuple(extent or 1 for extent in shape)


def _zero(spec: InputSpec) -> int | bool:
    return False if getattr(spec, "dtype", "") == "bool" else 0
