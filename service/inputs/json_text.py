"""JSON text judged before it is parsed, where parsing it could take much more memory than it has bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput, MalformedBody, TooLarge
from service.inputs.nesting import MAX_DEPTH, too_deep

# Strings and containers that are parsed without a question: some 20 MB of Python objects. Numbers cost a fraction.
_FREE_OBJECTS = 100_000

# So many arrays and objects are read at most, wherever they are: a 16 MB body could hold millions of empty ones.
MAX_CONTAINERS = 500_000

# So many strings are read at most, the keys of objects among them; 16 MB could hold millions of short ones, of which
# each takes some 60 bytes. More than MAX_INSTANCES rows of a thousand named columns by default.
MAX_STRINGS = 1_050_000

# Members of the body itself: it has a handful of keys, and the same one may be sent more than once.
MAX_KEYS = 1000

# A piece of the text is looked at in one go; what is worked out about it takes some ten times its size.
_PIECE_BYTES = 1024 * 1024

_QUOTE, _COMMA = ord('"'), ord(",")
# Square and curly brackets differ in one bit alone.
_CASE, _OPENING, _CLOSING = 0x20, ord("{"), ord("}")


@dataclass(frozen=True, slots=True)
class Shape:
    """`depth`: containers inside each other. `commas`: how many stand directly in containers of depth 1 and 2.

    `containers`: how many arrays and objects there are. `strings`: how many strings, keys included.
    """

    depth: int
    commas: tuple[int, int]
    containers: int = 0
    strings: int = 0


def refuse_if_costly(data: bytes, max_instances: int) -> None:
    """Raise InvalidInput, TooLarge or MalformedBody for a body that cannot be valid and would take much memory.

    It need not be JSON. What passes may be refused later all the same.
    """
    if len(data) <= _FREE_OBJECTS or data.count(b'"') // 2 + data.count(b"[") + data.count(b"{") <= _FREE_OBJECTS:
        return
    shape = shape_of(data)
    if shape.depth > MAX_DEPTH:
        raise too_deep()
    if shape.commas[0] >= MAX_KEYS:
        raise InvalidInput.at("", f"the body has more than {MAX_KEYS} keys")
    if shape.commas[1] >= max(max_instances, MAX_KEYS):
        raise TooLarge("the number of values under the keys of the body", max_instances, "MAX_INSTANCES")
    if shape.containers > MAX_CONTAINERS:
        raise MalformedBody(f"the body holds more than {MAX_CONTAINERS} arrays and objects")
    if shape.strings > MAX_STRINGS:
        raise MalformedBody(f"the body holds more than {MAX_STRINGS} strings, keys included")


def shape_of(data: bytes, piece_bytes: int = _PIECE_BYTES) -> Shape:
    """The shape of JSON text; of any other text some shape, at the same price."""
    if b"\\" in data:
        # An escaped quote ends no string. A pair of backslashes escapes nothing behind it.
        data = data.replace(rb"\\", b"__").replace(rb"\"", b"__")
    in_string, level, deepest = False, 0, 0
    commas = [0, 0]
    containers = 0
    for start in range(0, len(data), piece_bytes):
        text = np.frombuffer(data, np.uint8, min(piece_bytes, len(data) - start), start)
        outside, in_string = _outside_strings(text, in_string)
        depth = _depths(text, outside, level)
        containers += int(np.count_nonzero(((text | _CASE) == _OPENING) & outside))
        level, deepest = int(depth[-1]), max(deepest, int(depth.max()))
        at = depth[(text == _COMMA) & outside]
        commas = [count + int(np.count_nonzero(at == number)) for number, count in enumerate(commas, start=1)]
    return Shape(deepest, (commas[0], commas[1]), containers, data.count(b'"') // 2)


def _outside_strings(text: npt.NDArray[np.uint8], in_string: bool) -> tuple[npt.NDArray[np.bool_], bool]:
    inside = np.logical_xor.accumulate(text == _QUOTE) ^ in_string
    return ~inside, bool(inside[-1])


def _depths(text: npt.NDArray[np.uint8], outside: npt.NDArray[np.bool_], level: int) -> npt.NDArray[np.int32]:
    """How deep each byte stands, a container's own brackets counted inside and outside of it."""
    curly = text | _CASE
    steps = ((curly == _OPENING) & outside).view(np.int8) - ((curly == _CLOSING) & outside).view(np.int8)
    return np.cumsum(steps, dtype=np.int32) + np.int32(level)
