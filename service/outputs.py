"""A row's raw result to plain JSON: what the model said, in types that the JSON encoder takes."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from loaders.signature import OutputSpec
from service.errors import ModelFailed, NonFiniteOutput, PredictionFailed

# Nothing of these needs to be asked for the methods of other packages.
_ORDINARY = (np.ndarray, np.generic, float, int, str, list, tuple, dict, dt.date, type(None))

# Deep enough for any model, and far from the encoder's own limit of 254.
_MAX_DEPTH = 32


def present(spec: OutputSpec, raw: Any) -> Any:
    """One row's prediction, of None, bool, int, float, str, list, dict and NumPy arrays.

    An array is C-contiguous, in native byte order and of a dtype that orjson writes with OPT_SERIALIZE_NUMPY;
    so float32 keeps its shortest digits. A float32 scalar becomes the float with those digits.
    raw: whatever the model gave for this row; it is not changed, and an array in it may be handed on as it is.
    Raises NonFiniteOutput for NaN, NaT, infinity or a masked value anywhere, ModelFailed for what JSON cannot hold.
    """
    try:
        if spec.task == "classification":
            return _classified(spec, raw)
        convert = _PLAIN.get(type(raw))
        return _plain(raw, 0) if convert is None else convert(raw)
    except PredictionFailed:
        raise
    except Exception as error:
        # A type that we do not know has raised while it was looked at: it is the model's all the same.
        raise _unsupported(raw) from error


def _classified(spec: OutputSpec, raw: Any) -> Any:
    """The best class or classes; a mapping is several heads, each of which stands for itself."""
    raw = _as_array(raw)
    if isinstance(raw, Mapping):
        if spec.labels is not None and {str(key) for key in raw} == set(spec.labels):
            by_label = {str(key): value for key, value in raw.items()}
            return _classified(spec, [by_label[label] for label in spec.labels])
        return {key: _head(spec, value) for key, value in _items(raw)}
    scores = _scores(raw)
    if scores is None:
        return _plain(raw, 0)
    if spec.labels is not None and len(spec.labels) != len(scores):
        raise ModelFailed(f"the model gave {len(scores)} scores for the {len(spec.labels)} declared labels")
    return _best(spec, scores)


def _head(spec: OutputSpec, raw: Any) -> Any:
    """One of several heads: classified where the labels fit it, otherwise its raw numbers."""
    raw = _as_array(raw)
    scores = _scores(raw)
    if isinstance(raw, Mapping) or (scores is not None and len(spec.labels or scores) == len(scores)):
        return _classified(spec, raw)
    return _plain(raw, 1)


def _scores(raw: Any) -> npt.NDArray[Any] | None:
    """`raw` as one score per class, (n_classes,); None when it is something else, such as a finished label."""
    if isinstance(raw, list | tuple) and raw:
        values = [_as_array(value) for value in raw]
        values = [value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value for value in values]
        if all(_is_real(value) for value in values):
            raw = np.asarray(values)
    if isinstance(raw, np.ndarray) and raw.ndim == 1 and raw.size and raw.dtype.kind in "fiu":
        return raw
    return None


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _best(spec: OutputSpec, raw: npt.NDArray[Any]) -> Any:
    raw = _unmasked(raw)
    _require_finite(raw)
    scores = raw.astype(np.float64)
    if spec.softmax:
        # Shifting by the largest keeps exp() in range and does not change the quotient.
        scores = np.exp(scores - scores.max())
        scores /= scores.sum()
    # The digits that the model's own precision justifies.
    shown = scores.astype(np.float32) if raw.dtype in (np.float16, np.float32) else scores
    order = np.argsort(-scores, kind="stable")
    best = [
        {"label": int(i) if spec.labels is None else spec.labels[i], "score": _from_float(shown[i])}
        for i in order[: spec.top_k or 1]
    ]
    return best if spec.top_k is not None else best[0]


def _as_array(raw: Any) -> Any:
    """Tensors of torch, rows of sparse matrices and series of pandas as NumPy arrays; anything else as it is.

    They are known by their methods, so that none of these packages is imported.
    """
    if isinstance(raw, _ORDINARY):
        return raw
    if hasattr(raw, "detach") and hasattr(raw, "cpu"):
        raw = raw.detach().cpu().resolve_conj().resolve_neg()
        try:
            return np.asarray(raw.numpy())
        except TypeError:  # a type of number that NumPy does not have, such as bfloat16
            return np.asarray(raw.float().numpy())
    if hasattr(raw, "toarray"):
        dense = np.asarray(raw.toarray())
        # A row of a sparse matrix is a matrix of one row.
        return dense[0] if dense.ndim == 2 and len(dense) == 1 else dense
    if hasattr(raw, "to_numpy"):
        return np.asarray(raw.to_numpy())
    return raw


def _plain(raw: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ModelFailed(f"the model's result is nested more than {_MAX_DEPTH} deep")
    raw = _as_array(raw)
    if isinstance(raw, np.ndarray):
        return _from_array(raw, depth)
    if isinstance(raw, Mapping):
        return {key: _plain(value, depth + 1) for key, value in _items(raw)}
    if isinstance(raw, list | tuple):
        return [_plain(value, depth + 1) for value in raw]
    for kinds, convert in _SCALARS:
        if isinstance(raw, kinds):
            return convert(raw)
    raise _unsupported(raw)


def _items(raw: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """The entries with their keys as strings, which is all that JSON has."""
    for key in raw:
        if isinstance(key, bool) or not isinstance(key, str | int | np.integer):
            raise ModelFailed(f"the model's result has a key of type {type(key).__name__}; JSON has strings only")
    items = [(_from_str(str(key)), value) for key, value in raw.items()]
    if len(dict(items)) != len(items):
        raise ModelFailed("the model's result has two keys that are the same string")
    return items


def _from_array(raw: npt.NDArray[Any], depth: int) -> Any:
    raw = _unmasked(raw)
    if raw.ndim == 0:
        return _plain(raw[()], depth)
    if raw.dtype.kind == "f":
        _require_finite(raw)
        if raw.dtype not in (np.float32, np.float64):
            raw = raw.astype(np.float32 if raw.dtype.itemsize == 2 else np.float64)
    elif raw.dtype.kind in "OUM":
        # An element of an array of objects may be anything, itself included.
        return [_plain(value, depth + 1) for value in raw]
    elif raw.dtype.kind not in "biu":
        raise _unsupported(raw.dtype)
    if raw.flags.c_contiguous and raw.flags.aligned and raw.dtype.isnative:
        return raw
    return np.array(raw, dtype=raw.dtype.newbyteorder("="), order="C")


def _unmasked(raw: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array itself, of no subclass: the encoder does not know those."""
    if type(raw) is np.ndarray:
        return raw
    if isinstance(raw, np.ma.MaskedArray) and np.ma.is_masked(raw):
        raise NonFiniteOutput("the model answered with a masked, that is a missing, value")
    return np.asarray(raw)


def _from_float(raw: float | np.floating[Any]) -> float:
    if not math.isfinite(raw):
        raise NonFiniteOutput("the model answered with a number that is not finite")
    if isinstance(raw, np.floating) and raw.itemsize < 8:
        return float(str(np.float32(raw)))
    return float(raw)


def _from_int(raw: int | np.integer[Any]) -> int:
    value = int(raw)
    if not -(2**63) <= value < 2**64:
        raise ModelFailed("the model answered with an integer of more than 64 bits")
    return value


def _from_str(raw: str) -> str:
    text = str(raw)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ModelFailed("the model answered with a string that is no Unicode text") from None
    return text


def _from_date(raw: dt.date | np.datetime64) -> str:
    # NaT, also that of pandas, which is a date to Python, is the one that does not equal itself.
    if raw == raw and isinstance(raw, dt.date):
        return raw.isoformat()
    if raw != raw:
        raise NonFiniteOutput("the model answered with a date that is not a time (NaT)")
    return str(raw)


def _require_finite(raw: npt.NDArray[Any]) -> None:
    if not np.isfinite(raw).all():
        raise NonFiniteOutput("the model answered with a number that is not finite")


def _unsupported(raw: Any) -> ModelFailed:
    name = raw.name if isinstance(raw, np.dtype) else type(raw).__name__
    return ModelFailed(f"the model answered with a value of type {name}, which JSON cannot hold")


def _refuse(raw: Any) -> Any:
    raise _unsupported(raw)


# What most models give, told at once.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    float: _from_float,
    np.float32: _from_float,
    np.float64: _from_float,
    int: _from_int,
    np.int32: _from_int,
    np.int64: _from_int,
    str: _from_str,
    np.str_: _from_str,
    np.ndarray: lambda raw: _from_array(raw, 0),
}

# bool before int, because True is an int, and timedelta64 too, because NumPy counts it among the integers.
_SCALARS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    ((float, np.floating), _from_float),
    (str, _from_str),
    ((bool, np.bool_), bool),
    (np.timedelta64, _refuse),
    ((int, np.integer), _from_int),
    (type(None), lambda _: None),
    ((dt.date, np.datetime64), _from_date),
)
