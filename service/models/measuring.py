"""What batches of made-up texts take, for a scheduler that goes by time: measured before the first caller comes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from loaders.handle import ModelHandle
from loaders.signature import TextInput
from service.models.examples import text_rows
from service.models.warmup import Predict

_log = logging.getLogger("jitney")

# How long a start may take longer for it, seconds. What is not measured by then is learnt from the batches of callers.
BUDGET_S = 3.0

# The longest text that is measured, tokens, where the model takes longer ones.
LONGEST_TOKENS = 512

# Of a batch as short as this, seconds, the best of three runs counts: the first may have had to prepare something, and
# any may have been held up.
SHORT_S = 0.1

Learn = Callable[[int, int, float], None]


def measure(
    model: ModelHandle,
    max_batch_size: int,
    predict: Predict,
    learn: Learn,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Call `learn(rows, tokens, seconds)` for batches of 1, 2, 4 … rows and for short to long texts, cheapest first.

    Nothing is measured of a model that takes no tokens, and nothing more once a batch has failed: a batch of callers
    may be as large, and is then split. *Thread:* worker.
    """
    if not isinstance(model.input, TextInput) or model.input.encode is None:
        return
    began = clock()
    samples = sorted(_samples(model.input, max_batch_size), key=lambda sample: sample[0] * sample[1])
    for rows, tokens, row in samples:
        if clock() - began > BUDGET_S:
            return
        try:
            seconds = _seconds(partial(predict, model, [row] * rows, {}), clock)
        except Exception as error:
            _log.warning(
                "the model failed on %d made-up texts of %d tokens; larger batches are not measured",
                *(rows, tokens),
                exc_info=error,
            )
            return
        learn(rows, tokens, seconds)


def _samples(spec: TextInput, max_batch_size: int) -> Iterator[tuple[int, int, Any]]:
    """Rows, padded length in tokens, and the row that fills such a batch."""
    for row in text_rows(spec, min(spec.max_length or LONGEST_TOKENS, LONGEST_TOKENS)):
        for rows in _doubling(max_batch_size):
            yield rows, spec.padded_length(len(row.ids)), row


def _doubling(most: int) -> Iterator[int]:
    size = 1
    while size < most:
        yield size
        size *= 2
    yield most


def _seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    def once() -> float:
        began = clock()
        run()
        return clock() - began

    first = once()
    return first if first > SHORT_S else min(first, once(), once())
