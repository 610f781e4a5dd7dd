"""Times and sizes as nginx reads them, and which of its directives take one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from service.doctor.findings import Finding, error
from service.doctor.nginx_file import Block

_SIZE = re.compile(r"(\d+)([kKmMgG]?)")
_TIME = re.compile(r"(\d+)(ms|[smhdwMy]?)\s*")
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SECONDS = {"y": 31536000, "M": 2592000, "w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1, "": 1, "ms": 0.001}


def size_bytes(text: str) -> int | None:
    """`16m` as a number of bytes; None for what is no size."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * _BYTES[match[2].lower()]


def time_s(text: str) -> float | None:
    """`1m30s` as seconds; None for what is no time, as one whose larger units do not come first."""
    parts = list(_TIME.finditer(text))
    if not parts or text.endswith(" ") or "".join(part[0] for part in parts) != text:
        return None
    units = [_SECONDS[part[2]] for part in parts]
    if any(one <= next_one for one, next_one in pairwise(units)):
        return None
    return sum(int(part[1]) * unit for part, unit in zip(parts, units, strict=True))


def check_values(block: Block) -> Iterator[Finding]:
    """An error for each directive inside `block`, at any depth, whose time or size nginx could not read."""
    for each in block.inside:
        if each.name.endswith("_timeout") and not _are_all(time_s, each.args):
            yield error("nginx file", f"{each.place}: {_shown(each)} is no time", f"{each.name} 40s;")
        elif each.name.endswith("_size") and not _are_all(size_bytes, each.args):
            yield error("nginx file", f"{each.place}: {_shown(each)} is no size", f"{each.name} 16m;")
        yield from check_values(each)


def _are_all(read: Callable[[str], float | None], values: tuple[str, ...]) -> bool:
    """Whether there are values and nginx can read them; a variable may hold anything."""
    return bool(values) and all("$" in value or read(value) is not None for value in values)


def _shown(directive: Block) -> str:
    return " ".join((directive.name, *directive.args))
