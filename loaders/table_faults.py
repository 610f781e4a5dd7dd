"""What is wrong with the tables of a bundle, in words for the person who wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from loaders.tables import INPUT_TABLES, BundleTables, ModelTable, OutputTable, Table

_SUBJECT = re.compile(r"^(Input|List|String|Number) should ")
_CHOICE = re.compile(r"'([^']*)'")


def listed_faults(error: ValidationError) -> str:
    """Every key that is wrong, with what is wrong with it; the first thing said of each key counts."""
    faults = {_key(fault): _message(fault) for fault in reversed(error.errors())}
    return "; ".join(f"{key}: {message}" for key, message in sorted(faults.items()))


def _key(fault: Any) -> str:
    """`[input] size` for pydantic's ("input", "image", "size", 0): neither the tag of a union nor an index is a key."""
    table, *keys = (str(part) for part in fault["loc"])
    if fault["type"].startswith("union_tag"):
        keys = ["kind"]
    elif table == "input" and len(keys) > 1:
        keys = keys[1:]
    return f"[{table}] {keys[0]}" if keys else f"[{table}]"


def _message(fault: Any) -> str:
    """What is wrong with a key, and what is allowed instead."""
    kind = fault["type"]
    if kind == "extra_forbidden":
        return _unknown(fault["loc"])
    if kind == "union_tag_not_found":
        return f"is missing; it is {_or(INPUT_TABLES)}"
    if kind == "union_tag_invalid":
        return f"must be {_or(INPUT_TABLES)}{_hint(fault['ctx']['tag'], INPUT_TABLES)}"
    if kind == "literal_error":
        allowed = _CHOICE.findall(fault["ctx"]["expected"])
        return f"must be {_or(allowed)}{_hint(fault['input'], allowed)}"
    message = str(fault["msg"]).removeprefix("Value error, ").replace(" after validation", "")
    return _SUBJECT.sub("must ", message)


def _unknown(loc: tuple[int | str, ...]) -> str:
    known: Mapping[str, Any] = BundleTables.model_fields
    if len(loc) > 1:
        tables: dict[str, type[Table]] = {"model": ModelTable, "output": OutputTable, **INPUT_TABLES}
        known = tables[str(loc[1] if loc[0] == "input" else loc[0])].model_fields
    what = "key" if len(loc) > 1 else "table"
    return f"is not a {what} of a bundle, those here are {', '.join(known)}{_hint(loc[-1], known)}"


def _or(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _hint(written: object, known: Iterable[str]) -> str:
    close = get_close_matches(str(written), known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
