"""Where something is wrong, in the words of the request: what reads rows calls each an instance, whatever was sent."""

from __future__ import annotations

import re
from collections.abc import Callable

# From the number of a row to the place that its caller knows it by.
PlaceOf = Callable[[int], str]

_INSTANCE = re.compile(r"\binstances\[(\d+)\]")


def as_sent(text: str, place_of: PlaceOf | None) -> str:
    """`text` with the place of each instance as `place_of` names it; None where instances were sent."""
    return text if place_of is None else _INSTANCE.sub(lambda found: place_of(int(found[1])), text)
