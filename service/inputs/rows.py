"""What the preparation of rows takes beside the rows, and what it gives."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from service.errors import Fault, InvalidInput

# As many as an answer lists: looking for more would be work nobody sees.
MAX_FAULTS = 20


# Named tuples, because they are made in a third of the time of frozen dataclasses, and for each request.
class InputLimits(NamedTuple):
    """Bounds of what is taken, checked before the costly part of the work.

    `max_image_pixels`: width times height as the header says (MAX_IMAGE_PIXELS).
    `max_text_chars`: Unicode code points per text (MAX_TEXT_CHARS).
    `may_be_rounded`: the parser made floats of integers beyond 64 bits; where that may be, MayBeRounded is raised.
    """

    max_image_pixels: int
    max_text_chars: int
    may_be_rounded: bool = False


class PreparedRow(NamedTuple):
    """One row, ready for a batch.

    `payload`: what the model's `predict_batch` gets for it. `length`: tokens of a text, otherwise 1.
    `shape_key`: rows with equal keys can be stacked; empty for texts, which are padded instead.
    `truncated`: the text was longer than the model takes and was cut.
    """

    payload: Any
    length: int = 1
    shape_key: tuple[Any, ...] = ()
    truncated: bool = False


def raise_if_any(faults: Iterable[Fault]) -> None:
    """Raise InvalidInput with the first MAX_FAULTS of `faults`, if there are any."""
    found = tuple(islice(faults, MAX_FAULTS))
    if found:
        raise InvalidInput(*found)


def name_of_type(value: Any) -> str:
    """What JSON calls the type of `value`, for messages that must not repeat the value itself."""
    if value is None:
        return "null"
    for kinds, name in _JSON_NAMES:
        if isinstance(value, kinds):
            return name
    return "binary data" if isinstance(value, bytes) else type(value).__name__


# bool before int: in Python True is an int.
_JSON_NAMES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    (list, "a list"),
    (dict, "an object"),
)
