"""Running a model before the first caller does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from service.batching.instances import acting_as
from service.errors import NonFiniteOutput, PredictionFailed
from service.last_words import last_words
from service.models.copies import copies_of
from service.models.examples import TEXT, example_row
from service.outputs import present

_log = logging.getLogger("jitney")

Predict = Callable[[ModelHandle, list[Any], Mapping[str, Any]], Any]


def warm_up(model: ModelHandle, max_batch_size: int, predict: Predict, buckets: Sequence[int] = ()) -> Any | None:
    """Run a batch of one, a full batch, and one of each size in `buckets`; the prediction for a made-up row, if any.

    Of a model in several copies each is called as by its own worker thread; the others wait meanwhile.
    buckets: the sizes that batches are filled up to, rising; those above the first that holds a full batch never occur.
    Raises ModelLoadError, from whatever the model raised, or when what it gives can be no prediction. *Thread:* worker.
    """
    row = example_row(model.input)
    if row is None:
        return None
    reached = [size for size, below in zip(buckets, (0, *buckets), strict=False) if below < max_batch_size]
    sizes = sorted({1, max_batch_size, *reached})
    for number in range(copies_of(model)):
        with acting_as(number):
            prediction = _run(model, row, sizes, predict)
    return prediction


def _run(model: ModelHandle, row: Any, sizes: Sequence[int], predict: Predict) -> Any | None:
    prediction = None
    for size in sizes:
        what = f"the warm-up batch of {size} {'row' if size == 1 else 'rows'} ({_described(row)})"
        try:
            results = predict(model, [row] * size, {})
        except Exception as error:
            _log.error("the model failed on a warm-up batch", exc_info=error)
            raise ModelLoadError(f"{what} failed with {last_words(error)}; WARMUP=false starts without one") from error
        prediction = _checked(model, results, size, what)
    return prediction


def _checked(model: ModelHandle, results: Any, size: int, what: str) -> Any | None:
    """The prediction for the first row; None where it is not finite, which may be right for a row of zeros."""
    if not hasattr(results, "__len__") or len(results) != size:
        given = f"{len(results)} results" if hasattr(results, "__len__") else f"a {type(results).__name__}"
        raise ModelLoadError(f"{what} gave {given}; a model gives one result for each row")
    try:
        return present(model.output, results[0])
    except NonFiniteOutput:
        _log.warning("the model gives numbers that are not finite for %s", what)
        return None
    except PredictionFailed as error:
        raise ModelLoadError(f"{what}: {error}") from error


def _described(row: Any) -> str:
    if isinstance(row, np.ndarray):
        return f"zeros of shape {list(row.shape)} and type {row.dtype.name}"
    return f'the text "{TEXT}"'
