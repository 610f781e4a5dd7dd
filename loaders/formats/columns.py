"""What a fitted scikit-learn model knows of the types of its named columns, and frames in which those are kept.

Nothing here imports scikit-learn: fitted parts are told by the attributes that its conventions give them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any

import numpy as np


class ColumnType(StrEnum):
    """What the values of a column are.

    NUMERIC: whatever arithmetic takes, that is numbers or booleans. FLOAT32, INTEGER: numbers that these types of 32
    and 64 bits hold.
    """

    NUMBER = "number"
    FLOAT32 = "float32"
    INTEGER = "integer"
    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    TEXT = "text"


# Attributes that hold an estimator fitted inside another one: by a search, a calibration, a change of the target.
_INNER = ("best_estimator_", "estimator_", "regressor_", "estimators_", "calibrated_classifiers_", "estimator")

# Which columns a model of gradient boosting over histograms takes as categories; None where it takes none so.
_CATEGORIES = "is_categorical_"

# Meta-estimators hold each other some levels deep at most; the bound keeps a loop from being followed for ever.
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Column:
    """What is known of a column: the type of its values, and one that the model takes; None where nothing tells it."""

    kind: ColumnType | None = None
    example: Any = None


def known_columns(estimator: Any, columns: Sequence[str]) -> tuple[Column, ...]:
    """What the fitted parts of the estimator tell of each of `columns`; the first that knows a type is believed."""
    known: dict[str, Column] = {}
    for name, column in _told(estimator, tuple(columns), 0):
        if name not in known or (known[name].example is None and known[name].kind is column.kind):
            known[name] = column
    return tuple(known.get(name, Column()) for name in columns)


def to_frame(
    pandas: ModuleType, rows: list[Any], columns: Sequence[str], types: Sequence[ColumnType | None]
) -> tuple[Any, list[int]]:
    """The rows that are alike in type to the first one, as a data frame, and their positions in `rows`.

    A column of values of several types would be a column of another type to the estimator, so that a row's answer
    would depend on its neighbours. Column by column, pandas infers the type that the values have; a null counts as
    a number where the column is known to be numeric, and as a text where it holds text.
    """
    nulls = [_NULLS.get(kind, type(None)) if kind else type(None) for kind in types]
    nulls += [type(None)] * (len(rows[0]) - len(nulls))
    kinds = [_kinds(row, nulls) for row in rows]
    positions = [position for position, kind in enumerate(kinds) if kind == kinds[0]]
    data = {
        number: _column(pandas, [rows[position][number] for position in positions], kind)
        for number, kind in enumerate(kinds[0])
    }
    frame = pandas.DataFrame(data)
    frame.columns = list(columns)
    return frame, positions


def inner_parts(part: Any) -> Iterator[Any]:
    """The estimators inside a pipeline or another meta-estimator."""
    for _, step in getattr(part, "steps", None) or getattr(part, "transformer_list", None) or ():
        yield step
    for name in _INNER:
        held = getattr(part, name, None)
        if isinstance(held, list | tuple):
            yield from held
        elif hasattr(held, "predict") or hasattr(held, "transform"):
            yield held


_NULLS: dict[ColumnType, type] = {ColumnType.NUMBER: float, ColumnType.NUMERIC: float, ColumnType.TEXT: str}


def _kinds(row: Sequence[Any], nulls: list[type]) -> tuple[type, ...]:
    return tuple(
        null if value is None else float if type(value) is int else type(value)
        for value, null in zip(row, nulls, strict=True)
    )


def _column(pandas: ModuleType, values: list[Any], kind: type) -> Any:
    if None not in values:
        return values
    if kind is float:
        return pandas.Series(values, dtype=np.float64)
    # With the dtype that text has in this pandas, also where every value is a null.
    return pandas.Series(values, dtype=pandas.Series(["text"]).dtype if kind is str else object)


def _told(part: Any, names: tuple[str, ...], depth: int) -> Iterator[tuple[str, Column]]:
    """The types that one fitted part tells of the columns `names` that go into it."""
    if depth > MAX_DEPTH or part is None or isinstance(part, str):
        return
    names = _names_of(part, names)
    if hasattr(part, "transformers_"):
        yield from _told_by_transformers(part, names, depth, follower=None)
    elif getattr(part, "steps", None):
        yield from _told_by_steps(part, names, depth)
    elif getattr(part, "transformer_list", None):
        for _, inner in part.transformer_list:
            yield from _told(inner, names, depth + 1)
    elif isinstance(getattr(part, "categories_", None), list):
        yield from _told_by_categories(part.categories_, names)
    elif getattr(part, _CATEGORIES, None) is not None:
        yield from _told_by_boosting(part, names)
    elif isinstance(getattr(part, "statistics_", None), np.ndarray):
        # An imputer: what it fills in is of the type of the column.
        if (kind := _type_of(part.statistics_)) is not None:
            kind = ColumnType.NUMERIC if kind is ColumnType.NUMBER else kind
            yield from (
                (name, Column(kind, _first([value]))) for name, value in zip(names, part.statistics_, strict=False)
            )
    elif _takes_numbers_only(part):
        yield from ((name, Column(ColumnType.NUMERIC)) for name in names)
    else:
        for inner in inner_parts(part):
            yield from _told(inner, names, depth + 1)


def _told_by_steps(pipeline: Any, names: tuple[str, ...], depth: int) -> Iterator[tuple[str, Column]]:
    parts = [part for _, part in pipeline.steps if part is not None and part != "passthrough"]
    if not parts:
        return
    if hasattr(parts[0], "transformers_"):
        follower = parts[1] if len(parts) > 1 else None
        yield from _told_by_transformers(parts[0], _names_of(parts[0], names), depth, follower)
    else:
        yield from _told(parts[0], names, depth + 1)


def _told_by_transformers(
    transformer: Any, names: tuple[str, ...], depth: int, follower: Any
) -> Iterator[tuple[str, Column]]:
    """A column transformer; `follower`: the step after it, which sees the columns that it passes on."""
    for _, part, chosen in transformer.transformers_:
        columns = _chosen(chosen, names)
        if _passes_on(part):
            if follower is not None and _takes_numbers_only(follower):
                yield from ((name, Column(ColumnType.NUMERIC)) for name in columns)
        else:
            yield from _told(part, columns, depth + 1)


def _told_by_categories(categories: list[Any], names: Sequence[str]) -> Iterator[tuple[str, Column]]:
    for name, known in zip(names, categories, strict=False):
        kind, example = _type_of(np.asarray(known)), _first(known)
        if kind is not None or example is not None:
            yield name, Column(kind, example)


def _told_by_boosting(part: Any, names: tuple[str, ...]) -> Iterator[tuple[str, Column]]:
    """Gradient boosting over histograms, which encodes its columns of categories itself and bins all others."""
    encoder = getattr(getattr(part, "_preprocessor", None), "named_transformers_", {}).get("encoder")
    encoded = [name for name, is_category in zip(names, getattr(part, _CATEGORIES), strict=False) if is_category]
    yield from _told_by_categories(getattr(encoder, "categories_", []), encoded)
    yield from ((name, Column(ColumnType.NUMERIC)) for name in names if name not in encoded)


def _passes_on(part: Any) -> bool:
    # Newer versions store a function transformer without a function for the word.
    return (isinstance(part, str) and part == "passthrough") or (
        type(part).__name__ == "FunctionTransformer" and getattr(part, "func", None) is None
    )


def _chosen(chosen: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a column transformer gives to one part; none where that is said in another way."""
    if isinstance(chosen, str):
        return (chosen,)
    if isinstance(chosen, slice):
        # A slice of labels includes its end, unlike one of positions.
        return names[chosen] if not isinstance(chosen.start or chosen.stop, str) else ()
    found = []
    for key in np.asarray(chosen).tolist() if np.ndim(chosen) == 1 else ():
        if isinstance(key, str):
            found.append(key)
        elif isinstance(key, bool) or not isinstance(key, int) or not -len(names) <= key < len(names):
            return ()
        else:
            found.append(names[key])
    return tuple(found)


def _names_of(part: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    own = getattr(part, "feature_names_in_", None)
    return names if own is None else tuple(str(name) for name in own)


def _first(values: Any) -> Any:
    """The first value that JSON has, as a request would hold it; None without one."""
    plain = (value.item() if isinstance(value, np.generic) else value for value in values)
    return next((value for value in plain if type(value) in (bool, int, str) or _is_finite(value)), None)


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _type_of(values: np.ndarray[Any, Any]) -> ColumnType | None:
    if values.dtype.kind in "iuf":
        return ColumnType.NUMBER
    if values.dtype.kind == "b":
        return ColumnType.BOOLEAN
    if values.dtype.kind in "OUT":
        kinds = {type(value) for value in values.tolist() if value is not None and value == value}
        if kinds and all(issubclass(kind, str) for kind in kinds):
            return ColumnType.TEXT
        if kinds == {bool}:
            return ColumnType.BOOLEAN
    return None


def _takes_numbers_only(part: Any) -> bool:
    """Whether a part of scikit-learn itself says, by its tags, that it takes neither text nor categories."""
    if not type(part).__module__.startswith("sklearn.") or hasattr(part, "statistics_"):
        return False
    if any(
        getattr(part, name, None) is not None for name in ("transformers_", "steps", "transformer_list", _CATEGORIES)
    ):
        return False
    if not all(_takes_numbers_only(inner) for inner in inner_parts(part)):
        return False
    try:
        tags = part.__sklearn_tags__()
        return not (tags.input_tags.string or tags.input_tags.categorical or tags.no_validation)
    except AttributeError:  # an older version: then its parts tell nothing
        return False
