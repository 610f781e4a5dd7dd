"""From what a framework returned for a batch to one result per row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def rows_of(result: Any) -> Any:
    """The results row by row: an array for arrays, sparse matrices and data frames, a list for a sequence.

    Anything that has no rows is handed on as it is; the caller's count of results shows that it is wrong.
    """
    if hasattr(result, "toarray"):
        result = result.toarray()
    elif hasattr(result, "to_numpy"):
        result = result.to_numpy()
    if isinstance(result, np.ndarray):
        # A matrix keeps two dimensions however it is indexed, so a row of it would be a matrix again.
        return np.asarray(result)
    if isinstance(result, list | tuple):
        return [_plain_keys(row) for row in result]
    return result


def rows_by_name(outputs: Mapping[str, Any], count: int) -> Any:
    """One object by output name for each row; with a single output, that output's rows themselves.

    count: rows that went in. An output with another number of results is returned alone, so that the mismatch
    is noticed, and not hidden by cutting the others short.
    """
    rows = {name: rows_of(output) for name, output in outputs.items()}
    for output in rows.values():
        if len(rows) == 1 or not hasattr(output, "__len__") or np.ndim(output) == 0 or len(output) != count:
            return output
    return [{name: output[number] for name, output in rows.items()} for number in range(count)]


def _plain_keys(row: Any) -> Any:
    """A row {class: score} with the classes as text, which is what an object in JSON can have as its keys."""
    return {str(key): value for key, value in row.items()} if isinstance(row, dict) else row
